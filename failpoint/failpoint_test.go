package failpoint_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/triggerd/triggerd/failpoint"
)

// build compiles the test's command.
func build(t *testing.T, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "kill")
	out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, "./testdata/kill").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// runWith runs the command and tells what it printed and which signal ended it.
func runWith(t *testing.T, bin, setting string) (string, syscall.Signal) {
	t.Helper()
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), "TRIGGERD_FAILPOINT="+setting)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var sig syscall.Signal
	if exit != nil {
		ws, ok := exit.Sys().(syscall.WaitStatus)
		if !ok || !ws.Signaled() {
			t.Fatalf("%s: %v\n%s", setting, err, exit.Stderr)
		}
		sig = ws.Signal()
	}
	return strings.Join(strings.Fields(string(out)), " "), sig
}

const whole = "before 0 after 0 before 1 after 1 before 2 after 2"

func TestPointsKill(t *testing.T) {
	bin := build(t, "failpoint")
	for setting, want := range map[string]string{
		"before-append:1": "",
		"before-append":   "",
		"before-append:3": "before 0 after 0 before 1 after 1",
		"after-append:2":  "before 0 after 0 before 1",
		"after-append:4":  whole,
		"after-open:1":    whole,
		"":                whole,
	} {
		got, sig := runWith(t, bin, setting)
		if killed := want != whole; got != want || killed != (sig == syscall.SIGKILL) {
			t.Errorf("%q: printed %q and ended with signal %d, want %q", setting, got, sig, want)
		}
	}
}

func TestTheDefaultBuildHoldsNoKillPoint(t *testing.T) {
	failpoint.Hit(failpoint.BeforeAppend)
	bin := build(t, "")
	if got, sig := runWith(t, bin, "before-append:1"); got != whole || sig != 0 {
		t.Errorf("printed %q, signal %d", got, sig)
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("TRIGGERD_FAILPOINT")) {
		t.Error("the default build reads TRIGGERD_FAILPOINT")
	}
}
