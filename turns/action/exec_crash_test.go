//go:build linux

package action

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

// startVictim runs a daemon with one turn in a process of its own, and returns what the turn recorded.
func startVictim(t *testing.T, script string, args ...string) (*exec.Cmd, turns.Process) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{asDaemon}, sh(script, args...)...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	var p turns.Process
	_, err = fmt.Sscan(line, &p.Group, &p.Started)
	must(t, err)
	return cmd, p
}

func readPid(t *testing.T, path string) int {
	t.Helper()
	waitFile(path)
	b, err := os.ReadFile(path)
	must(t, err)
	var n int
	_, err = fmt.Sscan(strings.TrimSpace(string(b)), &n)
	must(t, err)
	return n
}

// family makes a child and a grandchild in a session of its own; neither heeds SIGTERM.
const family = `trap '' TERM; w() { echo "$1" > "$2.tmp"; mv "$2.tmp" "$2"; }
setsid sh -c 'trap "" TERM; echo $$ > "$0.tmp"; mv "$0.tmp" "$0"; while :; do sleep 0.02; done' "$1/grandchild" &
w $$ "$1/child"; while :; do sleep 0.02; done`

func TestKilledDaemonLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	cmd, p := startVictim(t, family, dir)
	child, grandchild := readPid(t, filepath.Join(dir, "child")), readPid(t, filepath.Join(dir, "grandchild"))
	killed := time.Now()
	must(t, cmd.Process.Kill())
	must(t, WaitGone(t.Context(), p))
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	wantGone(t, p.Group)
	wantGone(t, child)
	wantGone(t, grandchild)
}

func TestWaitGoneKillsWhatLingers(t *testing.T) {
	dir := t.TempDir()
	cmd, p := startVictim(t, family, dir)
	child, grandchild := readPid(t, filepath.Join(dir, "child")), readPid(t, filepath.Join(dir, "grandchild"))
	must(t, cmd.Process.Signal(syscall.SIGSTOP)) // a frozen daemon keeps its pipe open
	must(t, WaitGone(t.Context(), p))
	wantGone(t, p.Group)
	wantGone(t, child)
	wantGone(t, grandchild)
}

func TestKillGroup(t *testing.T) {
	dir := t.TempDir()
	cmd, p := startVictim(t, family, dir)
	child := readPid(t, filepath.Join(dir, "child"))
	must(t, cmd.Process.Signal(syscall.SIGSTOP))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(turns.ErrShutdown)
	if err := KillGroup(ctx, p); !errors.Is(err, turns.ErrShutdown) {
		t.Errorf("got %v, want ErrShutdown", err)
	}
	if err := WaitGone(ctx, p); !errors.Is(err, turns.ErrShutdown) {
		t.Errorf("got %v, want ErrShutdown", err)
	}
	must(t, KillGroup(t.Context(), p))
	wantGone(t, child)
	must(t, KillGroup(t.Context(), p)) // again
	must(t, WaitGone(t.Context(), turns.Process{}))
}

func TestExecSupervisorIsKilled(t *testing.T) {
	dir := t.TempDir()
	a := attempt()
	group := make(chan int, 1)
	a.Started = func(_ context.Context, p turns.Process) error {
		group <- p.Group
		return nil
	}
	go func() {
		waitFile(filepath.Join(dir, "child"))
		waitFile(filepath.Join(dir, "grandchild"))
		_ = syscall.Kill(<-group, syscall.SIGKILL)
	}()
	o := newExec(t, ExecOptions{Command: sh(strings.Replace(family, "setsid ", "", 1), dir)}).Run(t.Context(), a)
	wantOutcome(t, o, triggerd.Retry, "the supervisor was killed")
	wantGone(t, readPid(t, filepath.Join(dir, "child")))
	wantGone(t, readPid(t, filepath.Join(dir, "grandchild")))
}

func TestExecSupervisorIsStopped(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := ending(t)
	a := attempt()
	group := make(chan int, 1)
	a.Started = func(_ context.Context, p turns.Process) error {
		group <- p.Group
		return nil
	}
	go func() {
		waitFile(filepath.Join(dir, "child"))
		waitFile(filepath.Join(dir, "grandchild"))
		_ = syscall.Kill(<-group, syscall.SIGSTOP)
		stop(turns.ErrCancelled)
	}()
	act := newExec(t, ExecOptions{Command: sh(family, dir), KillAfter: 50 * time.Millisecond})
	act.(*execAction).lateAfter = 50 * time.Millisecond
	wantOutcome(t, act.Run(ctx, a), triggerd.Retry, turns.ErrCancelled.Error())
	wantGone(t, readPid(t, filepath.Join(dir, "child")))
	wantGone(t, readPid(t, filepath.Join(dir, "grandchild")))
}
