package integration

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// withMetrics gives the daemon a listener for Prometheus and returns its address.
func (in *installation) withMetrics() string {
	in.t.Helper()
	addr := freeAddr(in.t)
	in.write(strings.Replace(in.read(), "server:\n", "server:\n  metrics: { listen: '"+addr+"' }\n", 1))
	return addr
}

func fetch(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// The listener for Prometheus serves the metrics of the admin socket and nothing of its API, and neither secrets nor payload.
func TestMetricsListener(t *testing.T) {
	const secret, payload = "s3cret-of-the-hook", "payload-of-the-event"
	in := newInstallation(t, "", `
secrets: { hook: { env: HOOK_TOKEN } }
connections:
  in: { webhook: { verify: { scheme: bearer, secrets: [hook] } } }
triggers:
  work: { connection: in, run: { exec: { command: ['true'] } } }
`)
	in.env = []string{"HOOK_TOKEN=" + secret}
	url := "http://" + in.withMetrics()
	p := in.run()
	in.mustPost("in", "one", []byte(payload), "Authorization", "Bearer "+secret)
	in.awaitTurns("work", "the turn is done", 20*time.Second, allFinal(1))

	status, body := fetch(t, "GET", url+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	mustContain(t, "/metrics", body, `triggerd_events_total{connection="in"} 1`, `triggerd_turns_finished_total{state="done"} 1`, "go_goroutines")
	if strings.Contains(body, secret) || strings.Contains(body, payload) {
		t.Error("/metrics holds a secret or payload")
	}
	if status, admin := in.admin("/metrics"); status != http.StatusOK || names(admin) != names(body) {
		t.Errorf("the admin socket has other metrics, status %d:\n%s\nand not\n%s", status, names(admin), names(body))
	}
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, `{"status":"ok"}`},
		{"GET", "/readyz", 200, `{"ready":true}`},
		{"GET", "/readyz?verbose", 200, `{"ready":true}`},
		{"POST", "/metrics", 405, ""},
		{"POST", "/hooks/in", 404, ""},
		{"GET", "/api/v1/turns", 404, ""},
		{"POST", "/api/v1/reload", 404, ""},
	} {
		if status, body := fetch(t, c.method, url+c.path); status != c.status || c.body != "" && strings.TrimSpace(body) != c.body {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	if status, body := fetch(t, "GET", "http://"+in.addr+"/metrics"); status != http.StatusNotFound {
		t.Errorf("/metrics on the public listener: %d %s", status, body)
	}
	p.stop()
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), time.Second); err == nil {
		t.Error("something still listens")
	}
}

// names are the names of the metrics, in the order in which they come.
func names(metrics string) string {
	var out []string
	for line := range strings.Lines(metrics) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			out = append(out, name)
		}
	}
	return strings.Join(out, "")
}

// The metrics that the documentation tells people to watch are there under these names.
func TestDocumentedMetricsExist(t *testing.T) {
	sources, err := filepath.Glob("../daemon/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range sources {
		code.WriteString(repoFile(t, strings.TrimPrefix(name, "../")))
	}
	documented := regexp.MustCompile(`triggerd_\w+`).FindAllString(repoFile(t, "docs/operations.md"), -1)
	if len(documented) < 5 {
		t.Fatalf("found %v", documented)
	}
	for _, name := range documented {
		if short := strings.TrimPrefix(name, "triggerd_"); !strings.Contains(code.String(), `"`+name+`"`) && !strings.Contains(code.String(), `counter("`+short+`"`) {
			t.Errorf("docs/operations.md names %s, which no daemon has", name)
		}
	}
}

func TestMetricsListenerThatIsTaken(t *testing.T) {
	in := newInstallation(t, "", "")
	addr := in.withMetrics()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, stderr, code := in.command("serve")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	mustContain(t, "serve", stderr, "server.metrics.listen", addr, "address already in use")
}

// Labels take effect at the next start, and a change of them alone is no other configuration: the log says the one, the answer the other.
func TestChangedLabelsWaitForTheNextStart(t *testing.T) {
	e := newEditable(t, "")
	p := e.run()
	e.head = strings.Replace(e.head, "server:\n", "server:\n  labels: { host: b }\n", 1)
	e.set("")
	if res := e.reload(); res.Changed {
		t.Errorf("got %+v", res)
	}
	for _, line := range p.awaitLog("a change of this section takes effect at the next start", 1) {
		if line["section"] != "server.labels" {
			t.Errorf("got %v", line)
		}
	}
	p.stop()
}
