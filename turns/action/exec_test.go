//go:build linux

package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

func newExec(t *testing.T, o ExecOptions) turns.Action {
	t.Helper()
	o.Supervisor = supervisor()
	act, err := NewExec(o)
	must(t, err)
	return act
}

func runExec(t *testing.T, o ExecOptions) triggerd.Outcome {
	t.Helper()
	return newExec(t, o).Run(t.Context(), attempt())
}

func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

func TestExecOutcome(t *testing.T) {
	tests := []struct {
		name  string
		opts  ExecOptions
		verb  triggerd.Verb
		cause string
		code  int // -1 = none
	}{
		{"exit 0 is done", ExecOptions{Command: sh("exit 0")}, triggerd.Done, "", 0},
		{"another code is retried", ExecOptions{Command: sh("exit 1")}, triggerd.Retry, "exit code 1", 1},
		{"a listed code is dead", ExecOptions{Command: sh("exit 64"), DeadCodes: []int{64}}, triggerd.Dead, "exit code 64", 64},
		{"a code in the other list is retried", ExecOptions{Command: sh("exit 75"), RetryCodes: []int{75}, DeadCodes: []int{64}}, triggerd.Retry, "exit code 75", 75},
		{"the cause ends in the last line of standard error", ExecOptions{Command: sh("echo first >&2; echo last >&2; echo; echo; echo out; exit 2")}, triggerd.Retry, "exit code 2: last", 2},
		{"an unfinished line counts, blank ones do not", ExecOptions{Command: sh("printf 'a\\n\\n  b' >&2; exit 2")}, triggerd.Retry, "exit code 2: b", 2},
		{"a signal is named", ExecOptions{Command: sh("kill -SEGV $$")}, triggerd.Retry, "exit code 139 (killed by SIGSEGV)", 139},
		{"a signal's code can be listed", ExecOptions{Command: sh("kill -9 $$"), DeadCodes: []int{137}}, triggerd.Dead, "exit code 137 (killed by SIGKILL)", 137},
		{"a missing program is dead", ExecOptions{Command: []string{"no-such-program-here"}}, triggerd.Dead, "not found in PATH", -1},
		{"a missing directory is dead", ExecOptions{Command: []string{"true"}, Dir: "/no/such/dir"}, triggerd.Dead, "working directory", -1},
		{"a template that fails is dead", ExecOptions{Command: []string{"echo", "${{ event.payload.nope }}"}}, triggerd.Dead, "render command[1]: ", -1},
		{"an empty program is dead", ExecOptions{Command: []string{"${{ turn.thread == '' ? 'x' : '' }}"}}, triggerd.Dead, "command is empty", -1},
		{"a NUL in an argument is dead", ExecOptions{Command: []string{"echo", "${{ 'a\\x00b' }}"}}, triggerd.Dead, "command[1]: the value has a NUL byte", -1},
		{"a NUL in a variable is dead", ExecOptions{Command: []string{"true"}, Env: map[string]string{"A": "${{ 'a\\x00b' }}"}}, triggerd.Dead, "env.A: the value has a NUL byte", -1},
		{"a long argument is dead", ExecOptions{Command: []string{"true", strings.Repeat("x", maxValue+1)}}, triggerd.Dead, "the limit is 32768", -1},
		{"a long variable is dead", ExecOptions{Command: []string{"true"}, Env: map[string]string{"A": strings.Repeat("x", maxValue+1)}}, triggerd.Dead, "env.A: the value has 32769 bytes", -1},
		{"the longest value fits", ExecOptions{Command: sh(`test ${#1} -eq 32768`, strings.Repeat("x", maxValue))}, triggerd.Done, "", 0},
		{"a secret that cannot be read is retried", ExecOptions{Command: []string{"true"}, Env: map[string]string{"A": "${{ secrets.gone }}"}, Secrets: secretsOf(nil)}, triggerd.Retry, `secret "gone": no such secret`, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := runExec(t, tt.opts)
			wantOutcome(t, o, tt.verb, tt.cause)
			switch code := o.Result.ExitCode; {
			case tt.code < 0 && code != nil:
				t.Errorf("exit code %d, want none", *code)
			case tt.code >= 0 && (code == nil || *code != tt.code):
				t.Errorf("exit code %v, want %d", code, tt.code)
			}
		})
	}
}

func TestExecIdsWithNULAreDead(t *testing.T) {
	a := attempt()
	a.Thread = "a\x00b"
	wantOutcome(t, newExec(t, ExecOptions{Command: []string{"true"}}).Run(t.Context(), a), triggerd.Dead, "env.TRIGGERD_THREAD: the value has a NUL byte")
}

func TestExecOptionsAreRefused(t *testing.T) {
	tests := map[string]struct {
		opts ExecOptions
		want string
	}{
		"no command":      {ExecOptions{}, "command: name a program"},
		"negative beat":   {ExecOptions{Command: []string{"true"}, Beat: -1}, "beat: -1ns is negative"},
		"no supervisor":   {ExecOptions{Command: []string{"true"}}, "no supervisor"},
		"bad template":    {ExecOptions{Command: []string{"true", "${{ nope }}"}}, "command[1]: "},
		"bad variable":    {ExecOptions{Command: []string{"true"}, Env: map[string]string{"A=B": ""}}, `"A=B" cannot name a variable`},
		"our variable":    {ExecOptions{Command: []string{"true"}, Env: map[string]string{"TRIGGERD_TURN": ""}}, "set by triggerd"},
		"code 0":          {ExecOptions{Command: []string{"true"}, RetryCodes: []int{0}}, "not between 1 and 255"},
		"code in both":    {ExecOptions{Command: []string{"true"}, RetryCodes: []int{3}, DeadCodes: []int{3}}, "both in retry and in dead"},
		"bad environment": {ExecOptions{Command: []string{"true"}, Env: map[string]string{"A": "${{"}}, "env.A: "},
		"bad stdin":       {ExecOptions{Command: []string{"true"}, Stdin: ptr("${{ 1 +")}, "stdin: "},
		"bad dir":         {ExecOptions{Command: []string{"true"}, Dir: "${{ 1 +"}, "dir: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewExec(tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestExecEnvironmentIsExact(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH"))
	t.Setenv("HOME", "/home/x")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("TZ", "Europe/Berlin")
	t.Setenv("DAEMON_SECRET", "leak")
	o := runExec(t, ExecOptions{
		Command: []string{"env", "-0"},
		Env:     map[string]string{"TOKEN": "${{ secrets.tok }}", "NAME": "${{ event.payload.name }}", "TZ": "UTC", "LINES": "a\nb"},
		Secrets: secretsOf(map[string]string{"tok": "s3cret-value"}),
	})
	wantOutcome(t, o, triggerd.Done, "")
	got := strings.Split(strings.TrimSuffix(string(o.Result.Output), "\x00"), "\x00")
	slices.Sort(got)
	key := attempt().Key
	want := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "LANG=C.UTF-8", "TZ=UTC", "TOKEN=s3cret-value", "NAME=<Ann>", "LINES=a\nb",
		"TRIGGERD_CONNECTION=shop", "TRIGGERD_TRIGGER=ship-it", "TRIGGERD_EVENT_ID=o-1", "TRIGGERD_EVENT_TYPE=order.created",
		"TRIGGERD_EVENT_TIME=2026-11-30T12:00:00.005Z", "TRIGGERD_TURN=" + key.Hash(), "TRIGGERD_ATTEMPT=3",
		"TRIGGERD_IDEMPOTENCY_KEY=orders:ship:o-1", "TRIGGERD_THREAD=t-9", "TRIGGERD_HOPS=3",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("environment\n%q\nwant\n%q", got, want)
	}
}

func TestExecArgumentsAreNeverAShell(t *testing.T) {
	a := attempt()
	a.Event.Payload = []byte(`{"x": "$(touch /tmp/pwned); ` + "`id`" + ` | cat & \"' * ~"}`)
	o := newExec(t, ExecOptions{Command: []string{"printf", "%s", "${{ event.payload.x }}"}}).Run(t.Context(), a)
	wantOutcome(t, o, triggerd.Done, "")
	if want := "$(touch /tmp/pwned); `id` | cat & \"' * ~"; string(o.Result.Output) != want {
		t.Errorf("got %q, want %q", o.Result.Output, want)
	}
}

func TestExecStarted(t *testing.T) {
	t.Run("comes before any effect, with the command's group", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "effect")
		var p turns.Process
		a := attempt()
		a.Started = func(_ context.Context, got turns.Process) error {
			p = got
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Error("the effect was there before Started")
			}
			return nil
		}
		o := newExec(t, ExecOptions{Command: sh(`ps -o pgid= -p $$ | tee "$1"`, file)}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Done, "")
		host, err := os.Hostname()
		must(t, err)
		if got := strings.TrimSpace(string(o.Result.Output)); got != fmt.Sprint(p.Group) || p.Host != host || p.Started == "" {
			t.Errorf("group %s, recorded %+v", got, p)
		}
		must(t, WaitGone(t.Context(), p))
	})
	t.Run("refused: nothing runs, nothing is left", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "effect")
		var p turns.Process
		a := attempt()
		a.Started = func(_ context.Context, got turns.Process) error {
			p = got
			return errors.New("store unavailable")
		}
		o := newExec(t, ExecOptions{Command: sh(`touch "$1"`, file)}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Retry, "record the start of the command: store unavailable")
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Error("the command ran")
		}
		wantGone(t, p.Group)
	})
	t.Run("panics: dead, nothing is left", func(t *testing.T) {
		var p turns.Process
		a := attempt()
		a.Started = func(_ context.Context, got turns.Process) error {
			p = got
			panic("boom")
		}
		o := newExec(t, ExecOptions{Command: []string{"true"}}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Dead, "the action panicked: boom")
		wantGone(t, p.Group)
	})
	t.Run("missing is dead", func(t *testing.T) {
		a := attempt()
		a.Started = nil
		wantOutcome(t, newExec(t, ExecOptions{Command: []string{"true"}}).Run(t.Context(), a), triggerd.Dead, "cannot record")
	})
	t.Run("is not called for a context that has ended", func(t *testing.T) {
		ctx, stop := ending(t)
		stop(turns.ErrShutdown)
		a := attempt()
		a.Started = func(context.Context, turns.Process) error {
			t.Error("called")
			return nil
		}
		wantOutcome(t, newExec(t, ExecOptions{Command: []string{"true"}}).Run(ctx, a), triggerd.Retry, turns.ErrShutdown.Error())
	})
}

// wantGone checks without waiting that a process has ended.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
		t.Errorf("process %d is still there: %s", pid, stat)
	}
}

func TestExecIsEnded(t *testing.T) {
	const loop = `echo $$ > "$1.tmp"; mv "$1.tmp" "$1"; while :; do sleep 0.02; done`
	tests := []struct {
		name   string
		script string
		cause  error
		want   string
		code   int
	}{
		{"by a time-out", loop, turns.ErrTimeout, "timed out after", 143},
		{"by an operator", loop, turns.ErrCancelled, turns.ErrCancelled.Error(), 143},
		{"by a shutdown", loop, turns.ErrShutdown, turns.ErrShutdown.Error(), 143},
		{"although it ignores SIGTERM", "trap '' TERM; " + loop, turns.ErrTimeout, "timed out after", 137},
		{"and its answer to SIGTERM is no success", "trap 'exit 0' TERM; " + loop, turns.ErrTimeout, "timed out after", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, stop := ending(t)
			file := filepath.Join(t.TempDir(), "pid")
			go func() {
				waitFile(file)
				stop(tt.cause)
			}()
			o := newExec(t, ExecOptions{Command: sh(tt.script, file), KillAfter: 200 * time.Millisecond}).Run(ctx, attempt())
			wantOutcome(t, o, triggerd.Retry, tt.want)
			if o.Result.ExitCode == nil || *o.Result.ExitCode != tt.code {
				t.Errorf("exit code %v, want %d", o.Result.ExitCode, tt.code)
			}
			pid, err := os.ReadFile(file)
			must(t, err)
			var n int
			_, err = fmt.Sscan(string(pid), &n)
			must(t, err)
			wantGone(t, n)
		})
	}
	t.Run("and the cause names the limit of a deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, turns.ErrTimeout)
		defer cancel()
		o := newExec(t, ExecOptions{Command: []string{"sleep", "1000"}}).Run(ctx, attempt())
		wantOutcome(t, o, triggerd.Retry, "timed out after 300ms")
	})
}

// waitFile waits for a file that a command makes, for a minute at most: what comes next then fails for the lack of it.
func waitFile(path string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		select {
		case <-tick.C:
		case <-limit:
			return
		}
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
}

func TestExecManyAtOnce(t *testing.T) {
	act := newExec(t, ExecOptions{Command: sh(`cat > /dev/null; echo "$TRIGGERD_EVENT_ID"; exit "$(echo "$TRIGGERD_EVENT_ID" | tail -c 2)"`)})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			a := attempt()
			a.Event.ID = fmt.Sprintf("e-%03d", i)
			a.Key.EventID = a.Event.ID
			o := act.Run(t.Context(), a)
			if string(o.Result.Output) != a.Event.ID+"\n" || o.Result.ExitCode == nil || *o.Result.ExitCode != i%10 {
				t.Errorf("%s: %s %q, output %q", a.Event.ID, o.Verb, o.Cause, o.Result.Output)
			}
		})
	}
	wg.Wait()
}
