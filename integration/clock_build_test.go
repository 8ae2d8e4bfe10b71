package integration

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockVariable names, for a daemon of the clock build, the file that says by how many seconds its wall clock is wrong.
const clockVariable = "TRIGGERD_TEST_CLOCK"

// nowReads is the line of package time from which [time.Now] has the wall clock, timers' channels included. Monotonic readings do not come from there.
const nowReads = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"

// clockSource is added to package time. The file is mapped, so that a step takes effect at once and costs nothing to look for.
const clockSource = `package time

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

var testClock = sync.OnceValue(func() *atomic.Int64 {
	path, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(atomic.Int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("` + clockVariable + `: " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("` + clockVariable + `: " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*atomic.Int64)(unsafe.Pointer(&page[0]))
})
`

// buildClock builds, once, a daemon whose wall clock a test can step: Go reads the clock without libc, so that libfaketime does not reach it.
// All packages are compiled again, without optimization because that is quicker; a warm build cache has them.
var buildClock = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(defaultBinary)
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find package time: %w", err)
	}
	pkg := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	real, err := os.ReadFile(filepath.Join(pkg, "time.go"))
	if err != nil {
		return "", fmt.Errorf("read package time: %w", err)
	}
	if n := strings.Count(string(real), nowReads); n != 1 {
		return "", fmt.Errorf("%s/time.go has the start of Now %d times, want once: adapt nowReads to this version of Go", pkg, n)
	}
	stepped := strings.Replace(nowReads, "\n", "\n\tsec += testClock().Load()\n", 1)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(pkg, "time.go"):      filepath.Join(dir, "time.go"),
		filepath.Join(pkg, "testclock.go"): filepath.Join(dir, "testclock.go"),
	}})
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"time.go": strings.Replace(string(real), nowReads, stepped, 1), "testclock.go": clockSource, "overlay.json": string(overlay),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write overlay: %w", err)
		}
	}
	path := filepath.Join(dir, "triggerd-clock")
	out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w",
		"-o", path, "../cmd/triggerd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build with a clock to step: %w\n%s", err, out)
	}
	return path, nil
})

// clock is the wall clock of one installation's daemons. It keeps its error when a daemon is started again.
type clock struct {
	t    *testing.T
	path string
}

// newClock makes an installation's daemons read a clock that is right at first.
func newClock(t *testing.T, in *installation) *clock {
	t.Helper()
	bin, err := buildClock()
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{t: t, path: filepath.Join(in.dir, "clock")}
	c.step(0)
	in.binary, in.env = bin, append(in.env, clockVariable+"="+c.path)
	return c
}

// step makes the clock wrong by so much from now on.
func (c *clock) step(wrong time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(wrong/time.Second)), 0); err != nil {
		c.t.Fatal(err)
	}
}

// about reports whether a time that a daemon wrote since then, or a little before it, is from a clock that was wrong by so much.
func about(written, since time.Time, wrong time.Duration) bool {
	d := written.Sub(since.Add(wrong))
	return d > -time.Minute && d < time.Minute
}
