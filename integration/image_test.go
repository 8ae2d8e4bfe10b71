package integration

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/bus/bustest/disk"
	"github.com/triggerd/triggerd/console"
)

// dockerfile is what the tests take from the Dockerfile.
type dockerfile struct {
	from       []string
	build      string // the command
	user       string
	workdir    string // of the last stage
	volumes    []string
	env        []string
	health     []string
	entrypoint []string
	cmd        []string
}

func readDockerfile(t *testing.T) (d dockerfile) {
	t.Helper()
	list := func(s string) (out []string) {
		if err := json.Unmarshal([]byte(s), &out); err != nil {
			t.Fatalf("Dockerfile: %q: %v", s, err)
		}
		return out
	}
	for line := range strings.Lines(strings.ReplaceAll(repoFile(t, "Dockerfile"), "\\\n", " ")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "FROM":
			d.from = append(d.from, rest)
		case "RUN":
			if i := strings.Index(rest, "CGO_ENABLED=0"); i >= 0 {
				d.build = rest[i:]
			}
		case "USER":
			d.user = rest
		case "WORKDIR":
			d.workdir = rest
		case "VOLUME":
			d.volumes = append(d.volumes, rest)
		case "ENV":
			d.env = append(d.env, rest)
		case "HEALTHCHECK":
			_, command, _ := strings.Cut(rest, "CMD ")
			d.health = list(command)
		case "ENTRYPOINT":
			d.entrypoint = list(rest)
		case "CMD":
			d.cmd = list(rest)
		}
	}
	return d
}

func TestDockerfile(t *testing.T) {
	d := readDockerfile(t)
	if len(d.from) != 2 || !regexp.MustCompile(`golang:1\.\d+\.\d+-\S+ AS build$`).MatchString(d.from[0]) || d.from[1] != "scratch" {
		t.Errorf("FROM %q", d.from)
	}
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(d.user) { // a number: Kubernetes' runAsNonRoot cannot tell a name from root
		t.Errorf("USER %q", d.user)
	}
	if !slices.Equal(d.volumes, []string{"/data"}) || !slices.Equal(d.env, []string{"STATE_DIRECTORY=/data"}) {
		t.Errorf("VOLUME %q, ENV %q", d.volumes, d.env)
	}
	ignored := strings.Fields(repoFile(t, ".dockerignore"))
	out, err := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{.Dir}}{{range .EmbedFiles}} {{.}}{{end}}{{end}}{{end}}`, "../cmd/triggerd").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := absolute(t, "..")
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		dir, _ := filepath.Rel(root, words[0])
		top, _, _ := strings.Cut(dir, "/")
		if slices.Contains(ignored, top) || slices.ContainsFunc(words[1:], func(f string) bool { return strings.HasSuffix(f, ".md") }) {
			t.Errorf("the build needs %s, which .dockerignore keeps out", strings.TrimSpace(line))
		}
	}
}

// rootfs is the file system of a container of our image: what the Dockerfile puts there, with tmpfs where docker-compose.yml has them, else read-only.
type rootfs struct {
	t     *testing.T
	dir   string
	image dockerfile
	env   []string
}

// buildImage runs the Dockerfile's build command and returns the binary.
func buildImage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "triggerd")
	command := strings.Replace(readDockerfile(t).build, "-o /out/triggerd", "-o "+path, 1)
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "VERSION="+composeEnv["TRIGGERD_VERSION"], "TARGETOS=", "TARGETARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return path
}

func newRootfs(t *testing.T, binary string, s composeService, files map[string]string) *rootfs {
	t.Helper()
	r := &rootfs{t: t, dir: disk.Tmpfs(t, 256<<20), image: readDockerfile(t)}
	r.env = append(envList(s.Environment), r.image.env...)
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "triggerd"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	r.mount("/proc", "proc", "", syscall.MS_BIND, "")
	for _, m := range s.Tmpfs {
		at, options, _ := strings.Cut(m, ":")
		r.mount("tmpfs", at, "tmpfs", 0, options)
	}
	disk.ReadOnly(t, r.dir)
	return r
}

func (r *rootfs) mount(what, at, kind string, flags uintptr, options string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, at)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mount(what, dir, kind, flags, options); err != nil {
		r.t.Fatalf("mount %s (this test needs root): %v", at, err)
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			r.t.Errorf("unmount %s: %v", at, err)
		}
	})
}

// command is a process in the container: the image's user, working directory and environment, and nothing of ours.
func (r *rootfs) command(args []string) *exec.Cmd {
	uid, gid, _ := strings.Cut(r.image.user, ":")
	u, errU := strconv.ParseUint(uid, 10, 32)
	g, errG := strconv.ParseUint(gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.image.workdir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir, Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}}
	return cmd
}

// exec is `docker exec`.
func (r *rootfs) exec(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := r.command(args)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// start is `docker start`.
func (r *rootfs) start() *process {
	r.t.Helper()
	p := &process{in: &installation{t: r.t}, ready: make(chan struct{}), done: make(chan struct{}), log: &lockedBuffer{}}
	p.cmd = r.command(append(slices.Clone(r.image.entrypoint), r.image.cmd...))
	logs, err := p.cmd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go p.follow(logs)
	r.t.Cleanup(func() {
		p.kill()
		if r.t.Failed() {
			r.t.Logf("log of the container:\n%s", tail(p.log.String(), 4000))
		}
	})
	return p
}

// composeNATS starts the NATS servers of docker-compose.yml with their configuration, on addresses of this machine, and returns how to change texts to those.
func composeNATS(t *testing.T, f composeFile) *strings.Replacer {
	t.Helper()
	servers := f.named("nats-")
	addrs := freeAddrs(t, 3*len(servers))
	var elsewhere []string
	for i, name := range servers {
		elsewhere = append(elsewhere, name+":4222", addrs[3*i], name+":6222", addrs[3*i+1])
	}
	replace := strings.NewReplacer(elsewhere...)
	var healthy []string
	for i, name := range servers {
		s := f.Services[name]
		for k, v := range s.Environment {
			t.Setenv(k, replace.Replace(v))
		}
		dir := t.TempDir()
		conf := strings.NewReplacer("0.0.0.0:4222", addrs[3*i], "0.0.0.0:6222", addrs[3*i+1], "127.0.0.1:8222", addrs[3*i+2], `"/data"`, strconv.Quote(dir)).
			Replace(repoFile(t, "deploy/nats.conf"))
		writeFile(t, filepath.Join(dir, "nats.conf"), conf)
		args := slices.Clone(s.Command)
		args[slices.Index(args, "--config")+1] = filepath.Join(dir, "nats.conf")
		node := &natsNode{t: t, name: name, addr: addrs[3*i], log: &lockedBuffer{}, args: args[1:]}
		node.start()
		t.Cleanup(node.close)
		check := s.Healthcheck.Test
		healthy = append(healthy, strings.Replace(check[len(check)-1], "127.0.0.1:8222", addrs[3*i+2], 1))
	}
	for _, url := range healthy { // what compose waits for
		await(t, url, 30*time.Second, func() bool {
			res, err := monitorClient.Get(url)
			if err == nil {
				_ = res.Body.Close()
			}
			return err == nil && res.StatusCode == http.StatusOK
		})
	}
	return replace
}

// The image's binary, user, environment and file system, with the configuration and the NATS servers of docker-compose.yml: everything that it promises works,
// although it can write nowhere and has no HOME, no PATH, no /etc and no zone files.
func TestComposeTopologyRuns(t *testing.T) {
	f := readCompose(t)
	binary := buildImage(t)
	e, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if libs, err := e.ImportedLibraries(); err != nil || len(libs) > 0 || e.Section(".interp") != nil {
		t.Errorf("the binary is not static: %v, %v", libs, err)
	}
	replace := composeNATS(t, f)

	var containers []*rootfs
	var public, metrics []string
	for _, name := range f.named("triggerd-") {
		addrs := freeAddrs(t, 2)
		public, metrics = append(public, addrs[0]), append(metrics, addrs[1])
		config := strings.NewReplacer("0.0.0.0:8080", addrs[0], "0.0.0.0:9464", addrs[1]).Replace(replace.Replace(repoFile(t, "deploy/triggerd/triggerd.yaml")))
		c := newRootfs(t, binary, f.Services[name], map[string]string{
			"etc/triggerd/triggerd.yaml": config,
			"zone.yaml":                  "triggers: { t: { cron: { schedule: '@daily', timezone: Europe/Berlin }, run: { exec: { command: [x] } } } }\n",
		})
		containers = append(containers, c)
		c.start().awaitReady()
	}
	for i, c := range containers {
		if out, errs, err := c.exec(c.image.health...); err != nil {
			t.Errorf("the health check fails: %v\n%s%s", err, out, errs)
		}
		if out, errs, err := c.exec("/triggerd", "validate", "--config", "/zone.yaml"); err != nil {
			t.Errorf("a zone is not in the binary: %v\n%s%s", err, out, errs)
		}
		if status, body := fetch(t, "GET", "http://"+metrics[i]+"/metrics"); status != http.StatusOK || !strings.Contains(body, "triggerd_append_seconds") {
			t.Errorf("/metrics: %d %s", status, body)
		}
		in := &installation{t: t, addr: public[i]}
		in.mustPost("hello", fmt.Sprint("event-", i), []byte(`{"user":"ann"}`), "Content-Type", "application/json", "Authorization", "Bearer "+composeEnv["HOOK_TOKEN"])
		if a, err := in.post("hello", "", nil); err != nil || a.Status != http.StatusUnauthorized {
			t.Errorf("without a token: %+v, %v", a, err)
		}
	}
	awaitComposeTurns(t, containers[1], 4)
	list, _, err := containers[0].exec("/triggerd", "daemons", "list", "--json")
	var daemons []console.DaemonInfo
	if json.Unmarshal([]byte(list), &daemons) != nil || err != nil || len(daemons) != 2 || daemons[0].Version != composeEnv["TRIGGERD_VERSION"] {
		t.Errorf("daemons list: %v\n%s", err, list)
	}
}

// awaitComposeTurns asks inside a container, as the documentation says, until n turns of the webhook are done; a command ran in the container for half of them.
func awaitComposeTurns(t *testing.T, c *rootfs, n int) {
	t.Helper()
	var last string
	await(t, "the turns are done", 30*time.Second, func() bool {
		out, errs, err := c.exec("/triggerd", "turns", "list", "--connection", "hello", "--json")
		var turns []console.TurnInfo
		last = out + errs
		return err == nil && json.Unmarshal([]byte(out), &turns) == nil && count(turns, "done") == n && len(turns) == n
	})
	if !strings.Contains(last, `"greet"`) || !strings.Contains(last, `"per-user"`) {
		t.Errorf("got %s", last)
	}
}
