//go:build linux

package action

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/supervise"
	"github.com/triggerd/triggerd/turns"
)

// recorded makes an attempt whose process group can be asked for.
func recorded() (*turns.Attempt, <-chan turns.Process) {
	a, group := attempt(), make(chan turns.Process, 1)
	a.Started = func(_ context.Context, p turns.Process) error {
		group <- p
		return nil
	}
	return a, group
}

func TestFrozenDaemonLosesItsCommand(t *testing.T) {
	const limit = 2 * time.Second
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", append([]string{asDaemon}, sh(family, dir)...)...)
	cmd.Env = append(os.Environ(), victimBeat+"="+limit.String())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	must(t, err)
	var p turns.Process
	_, err = fmt.Sscan(line, &p.Group, &p.Started)
	must(t, err)
	child, grandchild := readPid(t, filepath.Join(dir, "child")), readPid(t, filepath.Join(dir, "grandchild"))

	frozen := supervise.Now()
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	for g := group(p); supervise.Alive(g) && supervise.Now()-frozen < time.Minute; {
		<-time.After(5 * time.Millisecond) // nobody tells a stranger that a group has ended
	}
	if took := supervise.Now() - frozen; took > limit+time.Second {
		t.Errorf("took %v", took)
	}
	wantGone(t, p.Group)
	wantGone(t, child)
	wantGone(t, grandchild)

	must(t, cmd.Process.Signal(syscall.SIGCONT))
	line, err = out.ReadString('\n')
	if want := "retry killed: the daemon was silent for "; err != nil || !strings.HasPrefix(line, want) {
		t.Errorf("the outcome after the thaw is %q, %v; want %q", line, err, want)
	}
}

func TestExecAlive(t *testing.T) {
	t.Run("the command lives as long as it holds", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("sleep 5"), Beat: 2 * time.Second})
		wantOutcome(t, o, triggerd.Done, "")
	})
	t.Run("when it ends the command is killed", func(t *testing.T) {
		dir := t.TempDir()
		var alive atomic.Bool
		alive.Store(true)
		go func() {
			waitFile(filepath.Join(dir, "child"))
			waitFile(filepath.Join(dir, "grandchild"))
			alive.Store(false)
		}()
		o := newExec(t, ExecOptions{Command: sh(family, dir), Beat: time.Second, Alive: alive.Load, DeadCodes: []int{137}}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Retry, "killed: the daemon was silent for ")
		wantGone(t, readPid(t, filepath.Join(dir, "child")))
		wantGone(t, readPid(t, filepath.Join(dir, "grandchild")))
	})
	t.Run("when it ends in the grace period the command is killed", func(t *testing.T) {
		dir := t.TempDir()
		var alive atomic.Bool
		alive.Store(true)
		ctx, stop := ending(t)
		go func() {
			waitFile(filepath.Join(dir, "child"))
			stop(turns.ErrTimeout)
			waitFile(filepath.Join(dir, "grandchild"))
			alive.Store(false)
		}()
		o := newExec(t, ExecOptions{Command: sh(family, dir), KillAfter: time.Hour, Beat: time.Second, Alive: alive.Load}).Run(ctx, attempt())
		wantOutcome(t, o, triggerd.Retry, "killed: the daemon was silent for ")
		wantGone(t, readPid(t, filepath.Join(dir, "child")))
	})
	t.Run("without it nothing starts", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "effect")
		a, group := recorded()
		o := newExec(t, ExecOptions{Command: sh(`touch "$1"`, file), Beat: time.Minute, Alive: func() bool { return false }}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Retry, "not started: another daemon may be the owner")
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Error("the command ran")
		}
		wantGone(t, (<-group).Group)
	})
	t.Run("without Beat it is not asked", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("exit 0"), Alive: func() bool {
			t.Error("asked")
			return false
		}})
		wantOutcome(t, o, triggerd.Done, "")
	})
}

func TestExecIsFenced(t *testing.T) {
	fenced := fmt.Errorf("partition 7: %w", triggerd.ErrFenced)
	t.Run("it is killed at once, without a SIGTERM", func(t *testing.T) {
		dir := t.TempDir()
		ctx, stop := ending(t)
		go func() {
			waitFile(filepath.Join(dir, "child"))
			waitFile(filepath.Join(dir, "grandchild"))
			stop(fenced)
		}()
		script := strings.Replace(family, "trap '' TERM", `trap 'touch "$1/term"' TERM`, 1)
		began := time.Now()
		o := newExec(t, ExecOptions{Command: sh(script, dir), KillAfter: time.Hour, DeadCodes: []int{137}}).Run(ctx, attempt())
		wantOutcome(t, o, triggerd.Retry, fenced.Error())
		if took := time.Since(began); took > 30*time.Second { // the grace period is an hour
			t.Errorf("took %v", took)
		}
		wantGone(t, readPid(t, filepath.Join(dir, "child")))
		wantGone(t, readPid(t, filepath.Join(dir, "grandchild")))
		if _, err := os.Stat(filepath.Join(dir, "term")); !os.IsNotExist(err) {
			t.Error("the command saw a SIGTERM")
		}
	})
	t.Run("a stopped supervisor does not delay it", func(t *testing.T) {
		dir := t.TempDir()
		ctx, stop := ending(t)
		a, group := recorded()
		stopped := make(chan time.Time, 1)
		go func() {
			waitFile(filepath.Join(dir, "child"))
			waitFile(filepath.Join(dir, "grandchild"))
			_ = syscall.Kill((<-group).Group, syscall.SIGSTOP)
			stopped <- time.Now()
			stop(fenced)
		}()
		o := newExec(t, ExecOptions{Command: sh(family, dir), Beat: time.Hour}).Run(ctx, a)
		if took := time.Since(<-stopped); took > DefaultKillAfter/2 {
			t.Errorf("took %v", took)
		}
		wantOutcome(t, o, triggerd.Retry, fenced.Error())
		wantGone(t, readPid(t, filepath.Join(dir, "child")))
		wantGone(t, readPid(t, filepath.Join(dir, "grandchild")))
	})
}
