package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// The two builds under test: the one that users get, and the one with kill points.
var defaultBinary, failpointBinary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "triggerd-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defaultBinary, failpointBinary = filepath.Join(dir, "triggerd"), filepath.Join(dir, "triggerd-failpoint")
	for _, args := range [][]string{
		{"build", "-o", defaultBinary, "../cmd/triggerd"},
		{"build", "-tags", "failpoint", "-o", failpointBinary, "../cmd/triggerd"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go %s: %v\n%s", strings.Join(args, " "), err, out)
			return 1
		}
	}
	return m.Run()
}

// installation is a folder with a configuration and a store, on which daemons are started one after the other.
type installation struct {
	t      *testing.T
	dir    string
	config string // path
	addr   string // public listener
	binary string
	env    []string
}

// newInstallation writes a configuration. `body` is what follows the server and nats sections; a %[1]s in it is the folder.
func newInstallation(t *testing.T, nats, body string) *installation {
	t.Helper()
	in := &installation{t: t, dir: t.TempDir(), addr: freeAddr(t), binary: defaultBinary}
	in.config = filepath.Join(in.dir, "triggerd.yaml")
	if nats == "" {
		nats = "  embedded: { store: " + in.dir + "/data, listen: 'off' }"
	}
	in.write(fmt.Sprintf("server:\n  listen: %s\n  admin: { listen: 'unix:%s' }\n  drain_timeout: 5s\nnats:\n%s\n%s", in.addr, in.socket(), nats, body))
	return in
}

func (in *installation) write(text string) {
	in.t.Helper()
	if err := os.WriteFile(in.config, []byte(text), 0o600); err != nil {
		in.t.Fatal(err)
	}
}

func (in *installation) read() string {
	in.t.Helper()
	b, err := os.ReadFile(in.config)
	if err != nil {
		in.t.Fatal(err)
	}
	return string(b)
}

func (in *installation) socket() string { return filepath.Join(in.dir, "admin.sock") }

func freeAddr(t *testing.T) string { t.Helper(); return freeAddrs(t, 1)[0] }

// process is one running daemon.
type process struct {
	in    *installation
	cmd   *exec.Cmd
	ready chan struct{} // closed at the log line that says so
	done  chan struct{} // closed when the process has ended
	err   error         // of Wait
	log   *lockedBuffer
}

// start runs `triggerd serve` and returns at once; env are additional variables.
func (in *installation) start(env ...string) *process {
	in.t.Helper()
	p := &process{in: in, ready: make(chan struct{}), done: make(chan struct{}), log: &lockedBuffer{}}
	p.cmd = exec.Command(in.binary, "serve", "--config", in.config, "--log-format", "json")
	p.cmd.Env = append(append(os.Environ(), in.env...), env...)
	p.cmd.Dir = in.dir
	r, err := p.cmd.StderrPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	go p.follow(r)
	in.t.Cleanup(func() {
		p.kill()
		if in.t.Failed() {
			in.t.Logf("log of process %d:\n%s", p.cmd.Process.Pid, tail(p.log.String(), 6000))
		}
	})
	return p
}

func (p *process) follow(r io.Reader) {
	once := sync.OnceFunc(func() { close(p.ready) })
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		_, _ = p.log.Write(append(s.Bytes(), '\n'))
		if bytes.Contains(s.Bytes(), []byte(`"triggerd is ready"`)) {
			once()
		}
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// awaitReady blocks until the daemon serves.
func (p *process) awaitReady() *process {
	p.in.t.Helper()
	select {
	case <-p.ready:
	case <-p.done:
		p.in.t.Fatalf("the daemon ended before it was ready: %v\n%s", p.err, tail(p.log.String(), 4000))
	case <-time.After(30 * time.Second):
		p.in.t.Fatalf("the daemon is not ready after 30 s\n%s", tail(p.log.String(), 4000))
	}
	return p
}

// run is start and awaitReady.
func (in *installation) run(env ...string) *process {
	in.t.Helper()
	return in.start(env...).awaitReady()
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// kill is kill -9, and waits until the process is gone. Safe to repeat.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.signal(syscall.SIGCONT)
	<-p.done
}

// stop is SIGTERM, and fails the test when the daemon does not end cleanly.
func (p *process) stop() {
	p.in.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.in.t.Fatal("the daemon did not stop within 30 s of SIGTERM")
	}
	if p.err != nil {
		p.in.t.Fatalf("the daemon ended with %v\n%s", p.err, tail(p.log.String(), 4000))
	}
}

// client speaks the admin API, as the commands do.
func (in *installation) client() *console.Client {
	in.t.Helper()
	c, err := console.Dial("unix:" + in.socket())
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = c.Close() })
	return c
}

// command runs the binary with --config and returns what it printed and its exit code.
func (in *installation) command(args ...string) (stdout, stderr string, code int) {
	in.t.Helper()
	cmd := exec.Command(defaultBinary, append(args, "--config", in.config)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, in.dir
	cmd.Env = append(os.Environ(), in.env...)
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			in.t.Fatal(err)
		}
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// answer is what a webhook answered.
type answer struct {
	Status     int
	RetryAfter string
	Event      string `json:"event"`
	Duplicate  bool   `json:"duplicate"`
	Error      string `json:"error"`
}

var httpClient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// post sends one webhook request; an error means that there was no answer.
func (in *installation) post(connection, id string, body []byte, header ...string) (answer, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+in.addr+"/hooks/"+connection, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if id != "" {
		req.Header.Set("Idempotency-Key", id)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{Status: res.StatusCode, RetryAfter: res.Header.Get("Retry-After")}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return a, err
	}
	_ = json.Unmarshal(b, &a)
	return a, nil
}

// mustPost is post that must be accepted.
func (in *installation) mustPost(connection, id string, body []byte, header ...string) answer {
	in.t.Helper()
	a, err := in.post(connection, id, body, header...)
	if err != nil || a.Status != http.StatusAccepted {
		in.t.Fatalf("post %s: %+v, %v", id, a, err)
	}
	return a
}

// turns lists turns; trigger "" = all.
func (in *installation) turns(trigger string) []console.TurnInfo {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ts, err := in.client().Turns(ctx, console.TurnQuery{Trigger: trigger, Limit: -1})
	if err != nil {
		in.t.Fatalf("list turns: %v", err)
	}
	return ts
}

// awaitTurns polls the list until it satisfies ok, and returns it.
func (in *installation) awaitTurns(trigger, what string, limit time.Duration, ok func([]console.TurnInfo) bool) []console.TurnInfo {
	in.t.Helper()
	var last []console.TurnInfo
	defer func() {
		if in.t.Failed() {
			states := map[string]int{}
			for _, t := range last {
				states[t.State]++
			}
			in.t.Logf("%d turns: %v", len(last), states)
		}
	}()
	await(in.t, what, limit, func() bool {
		last = in.turns(trigger)
		return ok(last)
	})
	return last
}

// allFinal reports that there are n turns and all of them are final.
func allFinal(n int) func([]console.TurnInfo) bool {
	return func(ts []console.TurnInfo) bool {
		for _, t := range ts {
			if t.Finished == nil {
				return false
			}
		}
		return len(ts) == n
	}
}

func count(ts []console.TurnInfo, state string) int {
	n := 0
	for _, t := range ts {
		if t.State == state {
			n++
		}
	}
	return n
}

// await polls until ok: another process's state gives no signal to wait for.
func await(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// lockedBuffer is a buffer that is written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
