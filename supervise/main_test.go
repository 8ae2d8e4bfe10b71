//go:build linux

package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays three parts: the tests, a supervisor, and a daemon that is going to be killed.
const (
	asSupervisor = Argument
	asDaemon     = "__daemon"
)

// victimBeat in the environment is the Beat of a victim's command.
const victimBeat = "TRIGGERD_TEST_BEAT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asSupervisor:
			os.Exit(Main(os.Args[2:]))
		case asDaemon:
			os.Exit(victim(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// victim is a daemon that launches a command, prints "<group id> <started>", and waits to be killed.
func victim(command []string) int {
	h, err := Launch(argv(), Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := spec(command...)
	s.Beat, _ = time.ParseDuration(os.Getenv(victimBeat))
	if s.Beat > 0 {
		defer keepBeating(h, s.Beat/4)()
	}
	if err := h.Run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("group", h.Group().ID, h.Group().Started)
	_, _ = h.Wait()
	return 0
}

// argv starts this binary as a supervisor. Under the race detector a process would otherwise sleep for a second when it exits.
func argv() []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{"env", "GORACE=atexit_sleep_ms=0", self, asSupervisor}
}

func spec(command ...string) Spec {
	s := Spec{Env: [][]byte{[]byte("PATH=" + os.Getenv("PATH")), []byte("TRIGGERD_TURN=test")}, KillAfter: 10 * time.Second}
	for _, a := range command {
		s.Args = append(s.Args, []byte(a))
	}
	return s
}

// output collects what a command writes and lets a test wait for a line of it.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan string
	rest  string
}

func newOutput() *output { return &output{lines: make(chan string, 1000)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	o.rest += string(p)
	for {
		line, rest, ok := strings.Cut(o.rest, "\n")
		if !ok {
			return len(p), nil
		}
		o.rest = rest
		o.lines <- line
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// pids waits for a line "<name> <pid>..." and returns the numbers.
func (o *output) pids(t *testing.T, name string) []int {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line := <-o.lines:
			rest, ok := strings.CutPrefix(line, name+" ")
			if !ok {
				continue
			}
			var out []int
			for _, f := range strings.Fields(rest) {
				if n, err := strconv.Atoi(f); err == nil {
					out = append(out, n)
				}
			}
			return out
		case <-timeout:
			t.Fatalf("no line %q; output: %s", name, o.String())
		}
	}
}

// launch starts a supervisor whose end the test waits for.
func launch(t *testing.T) (*Handle, *output) {
	t.Helper()
	out := newOutput()
	h, err := Launch(argv(), Streams{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return h, out
}

// run runs a shell script to its end.
func run(t *testing.T, s Spec) (Report, string) {
	t.Helper()
	h, out := launch(t)
	if err := h.Run(t.Context(), s); err != nil {
		h.Abort()
		t.Fatal(err)
	}
	rep, err := h.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return rep, out.String()
}

func sh(script string) []string { return []string{"sh", "-c", script} }

// gone fails the test if pid is a live process. It does not wait: callers check after the end was promised.
func gone(t *testing.T, what string, pid int) {
	t.Helper()
	if p, err := readProc(pid); err == nil && !p.dead() {
		t.Errorf("%s (%d) is still there in state %c", what, pid, p.state)
	}
}

// eventuallyGone waits for the end of a process that nobody promised to wait for.
func eventuallyGone(t *testing.T, what string, pid int, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := poll(ctx, func() bool {
		p, err := readProc(pid)
		return err != nil || p.dead()
	})
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("%s (%d) was still there after %v", what, pid, limit)
	}
}
