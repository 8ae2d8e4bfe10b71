//go:build linux

package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startVictim starts a daemon that runs script under a supervisor, and returns it with the supervisor's group.
func startVictim(t *testing.T, script string) (*exec.Cmd, Group, *output) {
	t.Helper()
	out := newOutput()
	cmd := exec.Command("/proc/self/exe", append([]string{asDaemon}, sh(script)...)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var g Group
	for line := range out.lines {
		if f := strings.Fields(line); f[0] == "group" {
			g = Group{ID: atoi(t, f[1]), Started: f[2]}
			break
		}
		out.lines <- line // the command may be faster than the daemon's own line
	}
	return cmd, g, out
}

func TestKilledDaemonTakesEverythingWithIt(t *testing.T) {
	script := `trap '' TERM HUP; setsid sh -c 'trap "" TERM HUP; echo grandchild $$; while :; do sleep 0.05; done' & echo child $$; while :; do sleep 0.05; done`
	cmd, g, out := startVictim(t, script)
	pids := map[string]int{"supervisor": g.ID}
	for len(pids) < 3 {
		f := strings.Fields(<-out.lines)
		pids[f[0]] = atoi(t, f[1])
	}
	if !Alive(g) {
		t.Fatal("the group is not seen as alive")
	}
	killed := time.Now()
	must(t, cmd.Process.Kill())
	must(t, WaitGone(t.Context(), g, 10*time.Second))
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	for what, pid := range pids {
		gone(t, what, pid)
	}
}

func TestKilledDaemonBeforeRun(t *testing.T) {
	// The control pipe closes before any spec was written, as after a kill between launch and run.
	h, out := launch(t)
	must(t, h.control.Close())
	if _, err := h.Wait(); !errors.Is(err, ErrLost) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want ErrLost", err)
	}
	gone(t, "supervisor", h.Group().ID)
	if out.String() != "" {
		t.Errorf("output %q", out.String())
	}
}

func TestKilledSupervisor(t *testing.T) {
	h, out := launch(t)
	must(t, h.Run(t.Context(), spec(sh(`sh -c 'echo grandchild $$; trap "" TERM; while :; do sleep 0.05; done' & echo child $$; wait`)...)))
	pids := map[string]int{}
	for len(pids) < 2 {
		f := strings.Fields(<-out.lines)
		pids[f[0]] = atoi(t, f[1])
	}
	must(t, syscall.Kill(h.Group().ID, syscall.SIGKILL))
	if _, err := h.Wait(); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	for what, pid := range pids {
		gone(t, what, pid)
	}
	if Alive(h.Group()) {
		t.Error("the group is seen as alive")
	}
}

// leaderless is a group whose leader has ended, and the process that is left of it, with these additions to its environment.
func leaderless(t *testing.T, env ...string) (Group, int) {
	t.Helper()
	leader := exec.Command("sh", "-c", "sh -c 'echo member $$; exec sleep 1000' & read x")
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leader.Env = append(os.Environ(), env...)
	out := newOutput()
	leader.Stdout = out
	leader.WaitDelay = time.Millisecond
	stdin, err := leader.StdinPipe()
	must(t, err)
	must(t, leader.Start())
	started, err := Identify(leader.Process.Pid)
	must(t, err)
	g := Group{ID: leader.Process.Pid, Started: started}
	member := out.pids(t, "member")[0]
	must(t, stdin.Close())
	_ = leader.Wait()
	return g, member
}

func TestOrphanedGroupWithoutLeaderIsFoundByItsEnvironment(t *testing.T) {
	g, member := leaderless(t, "TRIGGERD_TURN=x")
	if !Alive(g) {
		t.Error("the member is not seen")
	}
	must(t, WaitGone(t.Context(), g, 20*time.Millisecond))
	gone(t, "member", member)
}

func TestForeignGroupIsLeftAlone(t *testing.T) {
	// The same shape without the variable: a stranger that took the number of a group that is long gone.
	g, member := leaderless(t)
	must(t, Kill(t.Context(), g))
	if p, err := readProc(member); err != nil || p.dead() {
		t.Error("a process that was not ours was killed")
	}
	must(t, syscall.Kill(member, syscall.SIGKILL))
	eventuallyGone(t, "member", member, 10*time.Second)
}

func TestGroupsOfElsewhereAreGone(t *testing.T) {
	self, err := Identify(os.Getpid())
	must(t, err)
	cut := strings.LastIndexByte(self, '/')
	tests := map[string]Group{
		"zero":                   {},
		"no start":               {ID: os.Getpid()},
		"another boot":           {ID: os.Getpid(), Started: "0000" + self[4:]},
		"another pid namespace":  {ID: os.Getpid(), Started: strings.Replace(self, "pid:[", "pid:[9", 1)},
		"the number, used again": {ID: os.Getpid(), Started: self[:cut] + "/1"},
		"no number":              {ID: os.Getpid(), Started: self[:cut] + "/x"},
	}
	for name, g := range tests {
		t.Run(name, func(t *testing.T) {
			if Alive(g) {
				t.Error("seen as alive")
			}
			must(t, WaitGone(t.Context(), g, time.Hour))
			must(t, Kill(t.Context(), g))
		})
	}
}

func TestWaitGone(t *testing.T) {
	t.Run("ends with its context's cause", func(t *testing.T) {
		h, _ := launch(t)
		defer h.Abort()
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := WaitGone(ctx, h.Group(), time.Hour); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if err := Kill(ctx, h.Group()); !errors.Is(err, why) || !Alive(h.Group()) {
			t.Errorf("Kill: got %v, want %v and nothing killed", err, why)
		}
	})
	t.Run("kills what lingers", func(t *testing.T) {
		cmd, g, out := startVictim(t, `setsid sh -c 'echo grandchild $$; exec sleep 1000' & echo child $$; wait`)
		pids := map[string]int{"supervisor": g.ID}
		for len(pids) < 3 {
			f := strings.Fields(<-out.lines)
			pids[f[0]] = atoi(t, f[1])
		}
		must(t, cmd.Process.Signal(syscall.SIGSTOP)) // frozen, so its pipe stays open
		must(t, syscall.Kill(g.ID, syscall.SIGSTOP))
		must(t, WaitGone(t.Context(), g, 20*time.Millisecond))
		for what, pid := range pids {
			gone(t, what, pid)
		}
	})
}

func TestRunGivesUpOnAStoppedSupervisor(t *testing.T) {
	h, _ := launch(t)
	must(t, syscall.Kill(h.Group().ID, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Run(ctx, spec("true", strings.Repeat("x", 1<<20))); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline error", err)
	}
	h.Abort()
	gone(t, "supervisor", h.Group().ID)
}

func TestParseStat(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 1"
	tests := map[string]struct {
		in   string
		want proc
		ok   bool
	}{
		"plain":              {"7 (sh)" + tail, proc{7, 1, 2, 3, 'S', 1, 4242}, true},
		"brackets and space": {"7 (a) R 9 (b)" + tail, proc{7, 1, 2, 3, 'S', 1, 4242}, true},
		"newline in name":    {"7 (a\nb)" + tail, proc{7, 1, 2, 3, 'S', 1, 4242}, true},
		"empty":              {"", proc{}, false},
		"cut off":            {"7 (sh) S 1 2", proc{}, false},
		"no number":          {"x (sh)" + tail, proc{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.in))
			if (err == nil) != tt.ok || tt.ok && got != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestProcessWithoutItsFirstThreadIsAlive(t *testing.T) {
	for stat, want := range map[string]bool{
		"7 (sh) Z 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242": true,
		"7 (sh) Z 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 4242": false,
		"7 (sh) T 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242": false,
	} {
		p, err := parseStat([]byte(stat))
		must(t, err)
		if p.dead() != want {
			t.Errorf("%s: dead %v, want %v", stat, p.dead(), want)
		}
	}
}

// waitState waits until a process is in a state as /proc shows it.
func waitState(t *testing.T, pid int, state byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := poll(ctx, func() bool {
		p, err := readProc(pid)
		return err == nil && p.state == state
	})
	if err != nil {
		t.Fatalf("process %d never got to state %c", pid, state)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	must(t, err)
	return n
}
