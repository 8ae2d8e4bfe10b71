package integration

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/triggerd/triggerd/configs"
)

// composeFile is what the tests look at in docker-compose.yml.
type composeFile struct {
	Services map[string]composeService
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
}

type composeService struct {
	Image       string
	Build       *struct{ Args map[string]string }
	User        string
	Restart     string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Privileged  bool
	Init        bool
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Tmpfs       []string
	Networks    []string
	StopGrace   string                                `yaml:"stop_grace_period"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck *struct{ Test []string }
}

// composeEnv is what the file's head tells its reader to put into .env.
var composeEnv = map[string]string{"NATS_TOKEN": "0123456789abcdef0123456789abcdef", "HOOK_TOKEN": "token-of-the-webhook", "TRIGGERD_VERSION": "v9.8.7"}

var composeVariable = regexp.MustCompile(`\$\{(\w+)(?::[-?]([^}]*))?\}`)

// readCompose reads docker-compose.yml with the variables of composeEnv.
func readCompose(t *testing.T) composeFile {
	t.Helper()
	text := composeVariable.ReplaceAllStringFunc(repoFile(t, "docker-compose.yml"), func(s string) string {
		name := composeVariable.FindStringSubmatch(s)[1]
		if composeEnv[name] == "" {
			t.Errorf("docker-compose.yml wants %s, which its head does not explain", name)
		}
		return composeEnv[name]
	})
	var f composeFile
	if err := yaml.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func repoFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// named are the names of the services that start with prefix, in order.
func (f composeFile) named(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.Services)) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

func envList(m map[string]string) (env []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		env = append(env, name+"="+m[name])
	}
	return env
}

var pinned = regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+\.\d+(-[a-z0-9]+)?$`)

func TestComposeConfinesEverything(t *testing.T) {
	f := readCompose(t)
	if len(f.named("nats-")) != 3 || len(f.named("triggerd-")) != 2 || len(f.Services) != 6 {
		t.Fatalf("services: %v", slices.Sorted(maps.Keys(f.Services)))
	}
	for name, s := range f.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned by its version", name, s.Image)
		}
		if !s.ReadOnly || s.Privileged || len(s.CapAdd) > 0 || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined: %+v", name, s)
		}
		if s.Restart != "unless-stopped" {
			t.Errorf("%s: restart %q", name, s.Restart)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s on all addresses", name, p)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, declared := f.Volumes[volume]; !declared && !strings.HasSuffix(v, ":ro") {
				t.Errorf("%s can write to the host's %s", name, v)
			}
		}
		if strings.HasPrefix(name, "nats-") && (len(s.Ports) > 0 || !slices.Equal(s.Networks, []string{"nats"})) {
			t.Errorf("%s is reachable from outside: %+v", name, s)
		}
	}
	if !f.Networks["nats"].Internal {
		t.Error("the network of NATS has a way out")
	}
	version, _, _ := cli(t, t.TempDir(), nil, "version", "--json")
	var v struct {
		NATS string `json:"nats_server"`
	}
	if err := json.Unmarshal([]byte(version), &v); err != nil {
		t.Fatal(err)
	}
	for i, name := range f.named("nats-") {
		if want := "nats:" + strings.TrimPrefix(v.NATS, "v") + "-alpine"; f.Services[name].Image != want {
			t.Errorf("%s: %s is not the server that the tests run against, %s", name, f.Services[name].Image, want)
		}
		if !slices.Contains(f.Services[name].Volumes, name+":/data") {
			t.Errorf("server %d has no volume of its own: %v", i, f.Services[name].Volumes)
		}
	}
}

// What the daemons' configuration says is what compose and Prometheus were told.
func TestComposeAgreesWithTheConfiguration(t *testing.T) {
	f := readCompose(t)
	var versions, labels, metrics, published []string
	for _, name := range f.named("triggerd-") {
		s := f.Services[name]
		env := func(k string) (string, bool) { v, ok := s.Environment[k]; return v, ok }
		c, err := configs.Load(configs.Options{Files: []string{"../deploy/triggerd"}, Env: env})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out, errs, code := cli(t, t.TempDir(), envList(s.Environment), "validate", "--config", absolute(t, "../deploy/triggerd"))
		if code != 0 {
			t.Errorf("validate: exit code %d\n%s%s", code, out, errs)
		}
		versions, labels = append(versions, c.Version()), append(labels, configs.Pool(c.Server.Labels))
		metrics = append(metrics, name+":"+portOf(t, c.Server.Metrics.Listen))
		if len(s.Ports) != 1 || !strings.HasSuffix(s.Ports[0], ":"+portOf(t, c.Server.Listen)) {
			t.Errorf("%s publishes %v, the daemon listens on %s", name, s.Ports, c.Server.Listen)
		}
		published = append(published, s.Ports...)
		checkDaemonService(t, f, name, c)
	}
	if versions[0] != versions[1] || labels[0] == labels[1] || published[0] == published[1] {
		t.Errorf("the daemons have versions %v (want one), labels %v and ports %v (want two)", versions, labels, published)
	}
	var p struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(repoFile(t, "deploy/prometheus.yml")), &p); err != nil {
		t.Fatal(err)
	}
	if got := p.ScrapeConfigs[0].StaticConfigs[0].Targets; !slices.Equal(got, metrics) || len(p.ScrapeConfigs) != 1 {
		t.Errorf("Prometheus scrapes %v, the daemons' listeners are %v", got, metrics)
	}
}

func checkDaemonService(t *testing.T, f composeFile, name string, c *configs.Config) {
	t.Helper()
	s := f.Services[name]
	image := readDockerfile(t)
	if s.User != image.user || s.Build == nil || s.Build.Args["VERSION"] != composeEnv["TRIGGERD_VERSION"] || !strings.HasSuffix(s.Image, ":"+composeEnv["TRIGGERD_VERSION"]) || !s.Init {
		t.Errorf("%s: %+v", name, s)
	}
	if !slices.Contains(s.Volumes, "./deploy/triggerd:"+image.workdir+":ro") {
		t.Errorf("%s: the configuration's folder is not where the image looks for it: %v", name, s.Volumes)
	}
	uid, gid, _ := strings.Cut(image.user, ":")
	socket := filepath.Dir(strings.TrimPrefix(c.Server.Admin.Listen, "unix:"))
	if !slices.ContainsFunc(s.Tmpfs, func(m string) bool { return strings.HasPrefix(m, socket+":uid="+uid+",gid="+gid+",mode=0700") }) {
		t.Errorf("%s: nothing to write the socket in %s to: %v", name, socket, s.Tmpfs)
	}
	if grace, err := time.ParseDuration(s.StopGrace); err != nil || grace < time.Duration(c.Server.DrainTimeout)+10*time.Second {
		t.Errorf("%s: stop_grace_period %q cuts the drain of %s short (%v)", name, s.StopGrace, c.Server.DrainTimeout, err)
	}
	var urls []string
	for _, server := range f.named("nats-") {
		urls = append(urls, "nats://"+server+":4222")
		if s.DependsOn[server].Condition != "service_healthy" {
			t.Errorf("%s does not wait for %s", name, server)
		}
	}
	if !slices.Equal([]string(c.NATS.URL), urls) || c.NATS.Replicas != len(urls) {
		t.Errorf("%s: NATS at %v with %d replicas, the servers are %v", name, c.NATS.URL, c.NATS.Replicas, urls)
	}
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A compose client reads the file as the tests do, where there is one; it needs no engine for that.
func TestComposeClientTakesTheFile(t *testing.T) {
	client := []string{"docker", "compose"}
	if exec.Command("docker", "compose", "version").Run() != nil {
		client = []string{"docker-compose"}
		if _, err := exec.LookPath(client[0]); err != nil {
			t.Log("no compose client here: the file was checked by the other tests alone")
			return
		}
	}
	empty := filepath.Join(t.TempDir(), "env") // a developer's .env has no say
	writeFile(t, empty, "")
	run := func(env []string) (string, error) {
		cmd := exec.Command(client[0], append(client[1:], "--env-file", empty, "-f", "docker-compose.yml", "config")...)
		cmd.Dir, cmd.Env = "..", append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(envList(composeEnv))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct {
		Services map[string]struct {
			Image       string
			User        string
			ReadOnly    bool `yaml:"read_only"`
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for name, s := range readCompose(t).Services {
		if c := got.Services[name]; c.Image != s.Image || c.User != s.User || c.ReadOnly != s.ReadOnly || !maps.Equal(c.Environment, s.Environment) {
			t.Errorf("%s: the client reads %+v", name, c)
		}
	}
	for _, missing := range []string{"NATS_TOKEN", "HOOK_TOKEN"} {
		env := maps.Clone(composeEnv)
		delete(env, missing)
		if out, err := run(envList(env)); err == nil || !strings.Contains(out, "set it in .env") {
			t.Errorf("without %s: %v\n%s", missing, err, out)
		}
	}
}
