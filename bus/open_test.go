//go:build linux

package bus_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/bus/bustest/disk"
)

func publish(t *testing.T, b *bus.Bus, subject string, opts ...func(*nats.Msg)) (uint64, error) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte("payload")
	for _, o := range opts {
		o(m)
	}
	return b.Publish(bustest.Context(t), m)
}

func mustPublish(t *testing.T, b *bus.Bus, subject string, opts ...func(*nats.Msg)) uint64 {
	t.Helper()
	seq, err := publish(t, b, subject, opts...)
	if err != nil {
		t.Fatalf("publish on %s: %v", subject, err)
	}
	return seq
}

func TestReopenKeepsWhatIsStored(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	ctx := bustest.Context(t)
	seq := mustPublish(t, b, b.Names.Event("github", "0", "abc"))
	if err := b.PutControl(ctx, "some.key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsurePush(ctx, "orders", 1<<20); err != nil {
		t.Fatal(err)
	}
	b.Close()

	b = bustest.Open(t, bustest.Store(dir))
	m, err := b.At(ctx, b.Events, seq)
	if err != nil || string(m.Data) != "payload" {
		t.Fatalf("the event after reopening: %v, %v", m, err)
	}
	if v, err := b.GetControl(ctx, "some.key"); err != nil || string(v) != "value" {
		t.Fatalf("the control key after reopening: %q, %v", v, err)
	}
	if v, err := b.GetControl(ctx, "no.such.key"); err != nil || v != nil {
		t.Fatalf("a key that is not there: %q, %v", v, err)
	}
	if _, err := b.EnsurePush(ctx, "orders", 2<<20); err != nil {
		t.Fatalf("update the push stream: %v", err)
	}
	s, err := b.JS.Stream(ctx, b.Names.Push("orders"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().Config; got.MaxBytes != 2<<20 || got.Retention != jetstream.WorkQueuePolicy || got.AllowRollup || got.AllowMsgTTL || got.Discard != jetstream.DiscardNew {
		t.Fatalf("push stream: %+v", got)
	}
}

func TestAnEventKeepsItsSubjectAcrossReopen(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	subject := b.Names.Event("github", "0", "abc")
	mustPublish(t, b, subject)
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	if _, err := publish(t, b, subject); !errors.Is(err, bus.ErrExists) {
		t.Fatalf("second publish on the subject: %v, want ErrExists", err)
	}
}

// A lost description of a stream must not cost its messages: opening makes the stream anew over them.
func TestOpenTakesOverAStreamWhoseDescriptionIsLost(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	seq := mustPublish(t, b, b.Names.Event("github", "0", "abc"))
	b.Close()
	metas, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "triggerd_EVENTS", "meta.*"))
	if err != nil || len(metas) == 0 {
		t.Fatalf("find the stream's description: %v, %v", metas, err)
	}
	for _, m := range metas {
		if err := os.Truncate(m, 0); err != nil {
			t.Fatal(err)
		}
	}
	b = bustest.Open(t, bustest.Store(dir))
	if _, err := b.At(bustest.Context(t), b.Events, seq); err != nil {
		t.Fatalf("the event is gone: %v", err)
	}
}

func TestForeignStreams(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata map[string]string
		want     error
		names    string
	}{
		"a newer schema is refused with its number":   {map[string]string{"triggerd-schema": "7"}, bus.ErrNewerSchema, "schema 7"},
		"a stream that is not ours is left untouched": {nil, triggerd.ErrConflict, "not triggerd's"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, ctx := t.TempDir(), bustest.Context(t)
			b := bustest.Open(t, bustest.Store(dir))
			cfg := b.Turns.CachedInfo().Config
			if err := b.JS.DeleteStream(ctx, cfg.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := b.JS.CreateStream(ctx, jetstream.StreamConfig{Name: cfg.Name, Subjects: []string{"some.*"}, Metadata: tc.metadata}); err != nil {
				t.Fatal(err)
			}
			b.Close()
			_, err := bus.Open(ctx, bustest.Options(t, bustest.Store(dir)))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.names) || !strings.Contains(err.Error(), "triggerd_TURNS") {
				t.Fatalf("open: %v", err)
			}
		})
	}
}

func TestLockedStore(t *testing.T) {
	t.Run("in this process", func(t *testing.T) {
		dir := t.TempDir()
		b := bustest.Open(t, bustest.Store(dir))
		refused(t, dir, os.Getpid())
		b.Close()
		b.Close() // safe twice
		bustest.Open(t, bustest.Store(dir))
	})
	t.Run("by another process, until that is killed", func(t *testing.T) {
		dir := t.TempDir()
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), "BUS_TEST_HOLD_STORE="+dir)
		other.Stderr = os.Stderr
		stdin, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stdin.Close() }()
		stdout, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("other process: %q, %v", line, err)
		}
		refused(t, dir, other.Process.Pid)
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = other.Wait()
		bustest.Open(t, bustest.Store(dir))
	})
}

func refused(t *testing.T, dir string, pid int) {
	t.Helper()
	_, err := bus.Open(bustest.Context(t), bustest.Options(t, bustest.Store(dir)))
	if !errors.Is(err, bus.ErrLocked) || !strings.Contains(err.Error(), "process "+strconv.Itoa(pid)) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("open a locked store: %v", err)
	}
}

func TestUnusableStore(t *testing.T) {
	open := func(t *testing.T, dir string) error {
		_, err := bus.Open(bustest.Context(t), bustest.Options(t, bustest.Store(dir)))
		if err == nil {
			t.Fatal("the store was opened")
		}
		return err
	}
	t.Run("read-only file system", func(t *testing.T) {
		dir := disk.Tmpfs(t, 32<<20)
		disk.ReadOnly(t, dir)
		for _, store := range []string{dir, filepath.Join(dir, "data")} {
			if err := open(t, store); !strings.Contains(err.Error(), "nats.embedded.store") || errors.Is(err, bus.ErrDiskFull) {
				t.Errorf("open %s: %v", store, err)
			}
		}
	})
	t.Run("a file in its place", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(t, path); !strings.Contains(err.Error(), "nats.embedded.store") {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("disk full", func(t *testing.T) {
		dir := disk.Tmpfs(t, 32<<20)
		free := disk.Fill(t, dir, 1<<20)
		if err := open(t, dir); !errors.Is(err, bus.ErrDiskFull) || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("open: %v", err)
		}
		free()
		bustest.Open(t, bustest.Store(dir))
	})
	t.Run("disk full to the last byte", func(t *testing.T) {
		dir := disk.Tmpfs(t, 4<<10) // a folder of its own inode, and no page left
		disk.Fill(t, dir, 0)
		err := open(t, filepath.Join(dir, "data"))
		if !errors.Is(err, bus.ErrDiskFull) {
			t.Errorf("open: %v", err)
		}
	})
}

func TestDiskThatFillsUpDuringTheStart(t *testing.T) {
	for _, files := range []int{3, 4, 6, 8, 12, 16, 24, 32} { // it breaks off at another point each time
		dir := disk.Tmpfs(t, 64<<20, fmt.Sprint("nr_inodes=", files))
		_, err := bus.Open(bustest.Context(t), bustest.Options(t, bustest.Store(filepath.Join(dir, "data"))))
		if !errors.Is(err, bus.ErrDiskFull) {
			t.Errorf("room for %d files: %v", files, err)
		}
	}
}

func TestListenMustBeAnAddress(t *testing.T) {
	for _, listen := range []string{"no-port", "127.0.0.1:http"} {
		o := bustest.Options(t)
		o.Embedded.Listen = listen
		if _, err := bus.Open(bustest.Context(t), o); err == nil || !strings.Contains(err.Error(), "nats.embedded.listen") {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	o := bustest.Options(t)
	o.Embedded.Listen = l.Addr().String()
	_, err = bus.Open(bustest.Context(t), o)
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "nats.embedded.listen") {
		t.Fatalf("open: %v", err)
	}
	// Nothing is left locked or listening.
	_ = l.Close()
	b, err := bus.Open(bustest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}

func TestOpenStopsWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := bustest.Options(t)
	if _, err := bus.Open(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	bustest.Open(t, bustest.Store(o.Embedded.Store))
}

func TestExternalServer(t *testing.T) {
	server := bustest.Open(t, bustest.Listen())
	ctx := bustest.Context(t)
	t.Run("unreachable", func(t *testing.T) {
		o := bus.Options{Prefix: "triggerd", External: &bus.ExternalOptions{URLs: []string{"nats://127.0.0.1:1"}}}
		if _, err := bus.Open(ctx, o); err == nil || !strings.Contains(err.Error(), "nats.url") {
			t.Fatalf("open: %v", err)
		}
	})
	t.Run("refuses us", func(t *testing.T) {
		url := server.AppFor("none").URL
		o := bus.Options{Prefix: "triggerd", External: &bus.ExternalOptions{URLs: []string{url}, Token: "wrong"}}
		if _, err := bus.Open(ctx, o); !errors.Is(err, nats.ErrAuthorization) {
			t.Fatalf("open: %v", err)
		}
	})
	t.Run("has its users elsewhere", func(t *testing.T) {
		x := bustest.External(t, bustest.Server(t, t.TempDir(), 0).ClientURL())
		if !x.External() || server.External() {
			t.Fatal("External is wrong")
		}
		if err := x.EnsureApp("orders"); err != nil {
			t.Fatalf("EnsureApp: %v", err)
		}
		if _, err := x.AddApp("orders"); !errors.Is(err, triggerd.ErrConflict) {
			t.Fatalf("AddApp: %v", err)
		}
		if _, err := x.RemoveApp("orders"); !errors.Is(err, triggerd.ErrConflict) {
			t.Fatalf("RemoveApp: %v", err)
		}
		if a := x.AppFor("orders"); a.Enabled || a.Subjects != "triggerd.push.orders.>" {
			t.Fatalf("AppFor: %+v", a)
		}
		mustPublish(t, x, x.Names.Event("github", "0", "abc"))
		if err := x.Sync(ctx); err != nil {
			t.Fatalf("sync is the server's business: %v", err)
		}
	})
}
