package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// oneHook is a webhook `in` and an http action `work` that sends the payload to w; extra lines go into the trigger.
func oneHook(w *world, extra ...string) string {
	return fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  work:
    connection: in
    %s
    run: { http: { url: %s/effect } }
`, strings.Join(extra, "\n    "), w.URL)
}

// hold makes the world keep callers with this body waiting until release is called; held tells of each that came.
func (w *world) hold(t *testing.T, body string) (release func(), held chan struct{}) {
	open := make(chan struct{})
	held = make(chan struct{}, 64)
	w.gate = func(b string) {
		if b == body {
			held <- struct{}{}
			<-open
		}
	}
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release) // or the world could not be closed
	return release, held
}

// arrives waits for a caller that is held.
func arrives(t *testing.T, held chan struct{}) {
	t.Helper()
	select {
	case <-held:
	case <-time.After(15 * time.Second):
		t.Fatal("the action did not come")
	}
}

// configure changes words of the configuration.
func (in *installation) configure(oldnew ...string) {
	in.t.Helper()
	text := in.read()
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(text, oldnew[i]) {
			in.t.Fatalf("the configuration has no %q", oldnew[i])
		}
		text = strings.ReplaceAll(text, oldnew[i], oldnew[i+1])
	}
	in.write(text)
}

// words is what scripts have written into a file of the installation; none when it is not there yet.
func (in *installation) words(name string) []string {
	b, err := os.ReadFile(filepath.Join(in.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		in.t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// touch makes a file in the installation: a script's signal to go on.
func (in *installation) touch(name string) {
	in.t.Helper()
	if err := os.WriteFile(filepath.Join(in.dir, name), nil, 0o600); err != nil {
		in.t.Fatal(err)
	}
}

// processes are the daemon, its supervisors, their commands and all descendants: they all have the installation as working directory.
func (in *installation) processes() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		in.t.Fatal(err)
	}
	var pids []int
	for _, d := range dirs {
		if cwd, err := os.Readlink(d); err == nil && cwd == in.dir {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(d)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// noOrphans wants no process of the installation within limit, and says which ones are left.
func (in *installation) noOrphans(limit time.Duration) {
	in.t.Helper()
	var left []int
	defer func() {
		for _, pid := range left {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			in.t.Logf("still there: %d %q", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte(" ")))
		}
	}()
	await(in.t, "no process is left", limit, func() bool { left = in.processes(); return len(left) == 0 })
}

// ended waits for the end of the process and wants this exit code.
func (p *process) ended(limit time.Duration, code int) {
	p.in.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.in.t.Fatalf("the daemon has not ended within %s", limit)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.in.t.Fatalf("the daemon ended with %v, want exit code %d\n%s", p.cmd.ProcessState, code, tail(p.log.String(), 4000))
	}
}

// says waits for a word in the log.
func (p *process) says(word string) {
	p.in.t.Helper()
	await(p.in.t, "the log says "+word, 15*time.Second, func() bool { return strings.Contains(p.log.String(), word) })
}

// detail is everything that is known of one turn.
func (in *installation) detail(ref string) console.TurnDetail {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d, err := in.client().Turn(ctx, ref)
	if err != nil {
		in.t.Fatalf("turn %s: %v", ref, err)
	}
	return d
}

// commandJSON runs a command with --json, which must succeed, and decodes what it prints.
func (in *installation) commandJSON(into any, args ...string) {
	in.t.Helper()
	out, errs, code := in.command(append(args, "--json")...)
	if code != 0 {
		in.t.Fatalf("%q: exit %d: %s%s", args, code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		in.t.Fatalf("%q printed %q: %v", args, tail(out, 500), err)
	}
}

// metric is the sum of a metric's values over its labels.
func (in *installation) metric(name string) float64 {
	in.t.Helper()
	c := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", in.socket())
		},
		DisableKeepAlives: true,
	}}
	res, err := c.Get("http://triggerd/metrics")
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		in.t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				in.t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// unready is why the daemon says that it is not ready, "" when it is; /readyz on the public listener must agree.
func (in *installation) unready() string {
	in.t.Helper()
	res, err := httpClient.Get("http://" + in.addr + "/readyz")
	if err != nil {
		in.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return ""
	}
	if res.StatusCode != http.StatusServiceUnavailable {
		in.t.Fatalf("/readyz: %s", res.Status)
	}
	return strings.Join(in.client().Ready(context.Background()).Reasons, "; ") + " "
}

// traffic is senders that post events while something is done to the daemon. Every answer must be 202, or 503 with Retry-After within 2 s.
type traffic struct {
	in   *installation
	body []byte
	stop func() // ends the senders and waits for them; safe to repeat

	mu       sync.Mutex
	accepted []string
	refused  int
	slowest  time.Duration // of the refusals
}

// startTraffic posts events of this body from several clients, until stop. A refused one is sent again, as its sender must: it may be stored.
func startTraffic(in *installation, clients int, body []byte) *traffic {
	in.t.Helper()
	f := &traffic{in: in, body: body}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
				}
				for id, tries := fmt.Sprintf("c%d-%d", c, n), 0; !f.post(id) && tries < 1000; tries++ {
					pauseSender()
				}
				pauseSender()
			}
		})
	}
	f.stop = sync.OnceFunc(func() { close(ended); wg.Wait() })
	in.t.Cleanup(f.stop)
	return f
}

// post reports whether that was the answer to keep.
func (f *traffic) post(id string) bool {
	began := time.Now()
	a, err := f.in.post("in", id, f.body)
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.in.t.Errorf("post %s has no answer after %s: %v", id, took, err)
		return true
	case a.Status == http.StatusAccepted:
		f.accepted = append(f.accepted, id)
		return true
	case a.Status != http.StatusServiceUnavailable:
		f.in.t.Errorf("post %s: %+v, want 503", id, a)
	}
	f.refused++
	f.slowest = max(f.slowest, took)
	if n, err := strconv.Atoi(a.RetryAfter); err != nil || n < 1 {
		f.in.t.Errorf("post %s: Retry-After is %q", id, a.RetryAfter)
	}
	if took > 2*time.Second+slack {
		f.in.t.Errorf("post %s: refused after %s, want 2 s at most", id, took)
	}
	return false
}

// counts are how many events were accepted and refused until now.
func (f *traffic) counts() (accepted, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.accepted), f.refused
}

// moreAccepted waits until n more events are accepted.
func (f *traffic) moreAccepted(n int, limit time.Duration) {
	f.in.t.Helper()
	before, _ := f.counts()
	await(f.in.t, fmt.Sprintf("%d more events are accepted", n), limit, func() bool { a, _ := f.counts(); return a >= before+n })
}

// onlyRefused waits until n posts in a row are refused.
func (f *traffic) onlyRefused(n int, limit time.Duration) {
	f.in.t.Helper()
	accepted, refused := f.counts()
	await(f.in.t, fmt.Sprintf("%d refusals in a row", n), limit, func() bool {
		a, r := f.counts()
		if a != accepted {
			accepted, refused = a, r
		}
		return r >= refused+n
	})
}

// slack is what a busy test machine may add to a limit that the daemon keeps by a timer of its own.
const slack = 500 * time.Millisecond

// everyOneDone wants one done turn and at least one effect for each accepted event, and returns how many effects there were more.
func everyOneDone(in *installation, w *world, accepted []string) (repeats int) {
	in.t.Helper()
	turns := in.awaitTurns("", fmt.Sprintf("%d final turns", len(accepted)), 30*time.Second, allFinal(len(accepted)))
	var ids []string
	for _, turn := range turns {
		ids = append(ids, turn.EventID)
		if turn.State != "done" {
			in.t.Errorf("event %s: turn is %s: %s", turn.EventID, turn.State, turn.Error)
		}
	}
	slices.Sort(ids)
	if want := slices.Sorted(slices.Values(accepted)); !slices.Equal(ids, want) {
		in.t.Fatalf("turns of events\n%q, accepted were\n%q", ids, want)
	}
	effects := w.byKey()
	for _, id := range accepted {
		n := effects["in:work:"+id]
		if n == 0 {
			in.t.Errorf("event %s is done without an effect", id)
		}
		repeats += n - 1
	}
	if len(effects) != len(accepted) {
		in.t.Errorf("%d events took effect, %d were accepted", len(effects), len(accepted))
	}
	return repeats
}
