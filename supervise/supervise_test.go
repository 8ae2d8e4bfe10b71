//go:build linux

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCommandEnds(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want Report
		out  string
	}{
		{"with success", sh("echo hello"), Report{}, "hello\n"},
		{"with a code", sh("exit 75"), Report{Exit: 75}, ""},
		{"by a signal", sh("kill -9 $$"), Report{Exit: 137, Signal: 9}, ""},
		{"by SIGTERM from itself, which is not ours", sh("kill -TERM $$"), Report{Exit: 143, Signal: 15}, ""},
		{"although it signals its whole group", sh("trap '' TERM INT HUP; kill -TERM 0; kill -INT 0; kill -HUP 0; exit 3"), Report{Exit: 3}, ""},
		{"without standard input", sh("cat; echo end"), Report{}, "end\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rep, out := run(t, spec(tt.args...))
			if rep != tt.want || out != tt.out {
				t.Errorf("got %+v with output %q, want %+v with %q", rep, out, tt.want, tt.out)
			}
		})
	}
}

func TestCommandCannotStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	noInterpreter := write("nointerp", "#!/no/such/interpreter\n", 0o755)
	noFormat := write("noformat", "echo hi\n", 0o755)
	inDir := func(d string, args ...string) Spec {
		s := spec(args...)
		s.Dir = []byte(d)
		return s
	}
	withPath := func(path string, args ...string) Spec {
		s := spec(args...)
		s.Env = [][]byte{[]byte("PATH=" + path)}
		return s
	}
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"no command", Spec{}, "the command is empty"},
		{"not in PATH", spec("no-such-program-here"), "not found in PATH"},
		{"only in the working directory", inDir(dir, "noformat"), "write ./noformat"},
		{"found in PATH but not executable", withPath(dir, "plain"), "not executable"},
		{"relative parts of PATH do not count", withPath(".:", "noformat"), "not found in PATH"},
		{"no such file", spec("/no/such/file"), "no such file"},
		{"no permission", spec(plain), "is it executable?"},
		{"no interpreter", spec(noInterpreter), "interpreter that its first line names"},
		{"no #! line", spec(noFormat), "begin with #!"},
		{"no working directory", inDir("/no/such/dir", "true"), "working directory \"/no/such/dir\": no such file"},
		{"working directory is a file", inDir(plain, "true"), "is not a directory"},
		{"arguments too long", spec("true", strings.Repeat("x", 1<<18)), "use stdin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rep, out := run(t, tt.spec)
			if !strings.Contains(rep.Error, tt.want) || rep.Transient {
				t.Errorf("got %+v, want a lasting error with %q", rep, tt.want)
			}
			if out != "" {
				t.Errorf("output %q", out)
			}
		})
	}
}

func TestProgramBeingWrittenIsTransient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy")
	src, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, src, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if rep, _ := run(t, spec(path)); !rep.Transient || !strings.Contains(rep.Error, "text file busy") {
		t.Errorf("got %+v, want a transient error", rep)
	}
}

func TestCommandSeesExactlyItsEnvironmentAndDirectory(t *testing.T) {
	t.Setenv("TRIGGERD_TEST_LEAK", "1")
	dir := t.TempDir()
	s := spec("env")
	s.Env = append(s.Env, []byte("BYTES=\xff\xfe"))
	_, out := run(t, s)
	want := "PATH=" + os.Getenv("PATH") + "\nTRIGGERD_TURN=test\nBYTES=\xff\xfe\n"
	if out != want {
		t.Errorf("environment %q, want %q", out, want)
	}
	s = spec("pwd", "-P")
	s.Dir = []byte(dir)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, out := run(t, s); strings.TrimSpace(out) != real {
		t.Errorf("directory %q, want %q", out, real)
	}
}

func TestCommandInheritsNoOtherDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	// As with a descriptor that the daemon was started with: not marked to be closed.
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), syscall.F_SETFD, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	_, out := run(t, spec("ls", "/proc/self/fd"))
	if got := strings.Fields(out); !slices.Equal(got, []string{"0", "1", "2", "3"}) { // 3 is the directory that ls reads
		t.Errorf("descriptors %v, want 0 1 2 3", got)
	}
}

func TestNothingRunsBeforeRun(t *testing.T) {
	h, out := launch(t)
	pid := h.Group().ID
	h.Abort()
	gone(t, "supervisor", pid)
	if out.String() != "" {
		t.Errorf("output %q", out.String())
	}
}

func TestTerminate(t *testing.T) {
	t.Run("SIGTERM lets the command finish in its own way", func(t *testing.T) {
		h, out := launch(t)
		must(t, h.Run(t.Context(), spec(sh("trap 'echo bye; exit 7' TERM; echo ready 0; while :; do sleep 0.05; done")...)))
		out.pids(t, "ready")
		h.Terminate()
		rep, err := h.Wait()
		if want := (Report{Exit: 7, Terminated: true}); err != nil || rep != want {
			t.Errorf("got %+v, %v, want %+v", rep, err, want)
		}
		if !strings.HasSuffix(out.String(), "bye\n") {
			t.Errorf("output %q", out.String())
		}
	})
	t.Run("SIGKILL follows for one that ignores it, grandchildren with their own session included", func(t *testing.T) {
		h, out := launch(t)
		s := spec(sh(`trap '' TERM; setsid sh -c 'trap "" TERM; echo grandchild $$; while :; do sleep 0.05; done' & echo child $$; while :; do sleep 0.05; done`)...)
		s.KillAfter = 200 * time.Millisecond
		must(t, h.Run(t.Context(), s))
		pids := map[string]int{}
		for len(pids) < 2 {
			line := <-out.lines
			f := strings.Fields(line)
			pids[f[0]] = atoi(t, f[1])
		}
		h.Terminate()
		rep, err := h.Wait()
		if want := (Report{Exit: 137, Signal: 9, Terminated: true}); err != nil || rep != want {
			t.Errorf("got %+v, %v, want %+v", rep, err, want)
		}
		for what, pid := range pids {
			gone(t, what, pid)
		}
		gone(t, "supervisor", h.Group().ID)
	})
	t.Run("a stopped command is woken up to see it", func(t *testing.T) {
		h, out := launch(t)
		must(t, h.Run(t.Context(), spec(sh("echo ready $$; kill -STOP $$; exit 9")...)))
		pid := out.pids(t, "ready")[0]
		waitState(t, pid, 'T')
		h.Terminate()
		rep, err := h.Wait()
		if want := (Report{Exit: 143, Signal: 15, Terminated: true}); err != nil || rep != want {
			t.Errorf("got %+v, %v, want %+v", rep, err, want)
		}
	})
	t.Run("after the end it does nothing", func(t *testing.T) {
		h, _ := launch(t)
		must(t, h.Run(t.Context(), spec("true")))
		waitState(t, h.Group().ID, 'Z')
		h.Terminate()
		if rep, err := h.Wait(); err != nil || rep != (Report{}) {
			t.Errorf("got %+v, %v", rep, err)
		}
	})
}

func TestLeftoversEndWithTheCommand(t *testing.T) {
	h, out := launch(t)
	s := spec(sh(`setsid sh -c 'trap "" TERM; echo daemon $$; exec sleep 1000' & while ! test -e "$1"; do sleep 0.01; done; exit 4`)...)
	flag := filepath.Join(t.TempDir(), "flag")
	s.Args = append(s.Args, []byte("sh"), []byte(flag))
	s.KillAfter = 100 * time.Millisecond
	must(t, h.Run(t.Context(), s))
	pid := out.pids(t, "daemon")[0]
	must(t, os.WriteFile(flag, nil, 0o600))
	rep, err := h.Wait()
	if err != nil || rep != (Report{Exit: 4}) {
		t.Errorf("got %+v, %v, want exit 4", rep, err)
	}
	gone(t, "background process", pid)
}

func TestForkStormEnds(t *testing.T) {
	h, out := launch(t)
	s := spec(sh(`trap '' TERM; n=0; while [ $n -lt 40 ]; do (while :; do (sleep 0.01; :) & wait; done) & n=$((n+1)); done; echo ready 1; wait`)...)
	s.KillAfter = 20 * time.Millisecond
	must(t, h.Run(t.Context(), s))
	out.pids(t, "ready")
	h.Terminate()
	if _, err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	if left := inSession(t, h.Group().ID); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

func TestManualStartIsRefused(t *testing.T) {
	err := exec.Command("/proc/self/exe", asSupervisor).Run()
	var ee *exec.ExitError
	if !errors.As(err, &ee) || ee.ExitCode() != 2 {
		t.Errorf("got %v, want exit code 2", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inSession(t *testing.T, id int) []proc {
	t.Helper()
	table, err := scan()
	must(t, err)
	var out []proc
	for _, p := range table {
		if p.session == id && !p.dead() {
			out = append(out, p)
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	return out
}
