package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tmpfs mounts a small file system until the test ends. It needs root, as in CI.
func tmpfs(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ballast fills the file system of dir until only leave bytes are free; with 0 until a write fails. Remove the file to free the space.
func ballast(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	path = filepath.Join(dir, "ballast")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	page := make([]byte, 4096)
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		if leave > 0 && int64(st.Bavail)*st.Bsize <= leave {
			return path
		}
		if _, err := f.Write(page); errors.Is(err, syscall.ENOSPC) {
			return path
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// buildNATS builds the real nats-server of our go.mod, once.
var buildNATS = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(defaultBinary), "nats-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return path, nil
})

// natsServer is a server of its own, which can be stopped and started on the same store.
type natsServer struct {
	t    *testing.T
	addr string
	dir  string
	args []string
	opts []nats.Option // of the test's own connections
	cmd  *exec.Cmd
	done chan struct{}
}

func newNATS(t *testing.T, args []string, opts ...nats.Option) *natsServer {
	t.Helper()
	s := &natsServer{t: t, addr: freeAddr(t), dir: t.TempDir(), args: args, opts: opts}
	s.start()
	t.Cleanup(func() { s.stop(syscall.SIGKILL) })
	return s
}

func (s *natsServer) url() string { return "nats://" + s.addr }

// start returns when JetStream answers.
func (s *natsServer) start() {
	s.t.Helper()
	bin, err := buildNATS()
	if err != nil {
		s.t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(s.addr)
	s.cmd, s.done = exec.Command(bin, append([]string{"-js", "-sd", s.dir, "-a", host, "-p", port}, s.args...)...), make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	await(s.t, "nats-server answers", 15*time.Second, func() bool {
		nc, err := nats.Connect(s.url(), s.opts...)
		if err != nil {
			return false
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
		if err != nil {
			return false
		}
		_, err = js.AccountInfo(context.Background())
		return err == nil
	})
}

// stop ends the server and waits for it. Safe to repeat.
func (s *natsServer) stop(sig os.Signal) {
	_ = s.cmd.Process.Signal(sig)
	<-s.done
}
