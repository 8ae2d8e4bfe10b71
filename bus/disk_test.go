//go:build linux

package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/bus/bustest/disk"
)

// eventually asks until ok says yes. What it waits for happens in a loop of the bus that nothing signals.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("in vain: %s", what)
		}
	}
}

func TestEventsAreRefusedBelowTheReserve(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir := disk.Tmpfs(t, 64<<20)
	b := bustest.Open(t, bustest.Store(dir), bustest.Reserve(32<<20))
	if err := b.AcceptsEvents(); err != nil {
		t.Fatal(err)
	}
	free := disk.Fill(t, dir, 24<<20)
	eventually(t, "events are refused", func() bool { return b.AcceptsEvents() != nil })
	if err := b.AcceptsEvents(); !errors.Is(err, triggerd.ErrUnavailable) || !strings.Contains(err.Error(), "below the reserve of 32 MiB") {
		t.Fatalf("AcceptsEvents: %v", err)
	}
	if err := b.Writable(); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("Writable: %v", err)
	}
	mustPublish(t, b, b.Names.Turn("default", "1", "a")) // the reserve is for turns
	free()
	eventually(t, "events are accepted again", func() bool { return b.AcceptsEvents() == nil })
	if err := b.Writable(); err != nil || b.Restarts() != 0 {
		t.Fatalf("Writable: %v after %d restarts", err, b.Restarts())
	}
}

func TestOpenOnADiskBelowTheReserveRefusesAtOnce(t *testing.T) {
	b := bustest.Open(t, bustest.Store(disk.Tmpfs(t, 64<<20)), bustest.Reserve(1<<30))
	if err := b.AcceptsEvents(); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("AcceptsEvents: %v", err)
	}
}

func TestReasonsToRefuseEventsAddUp(t *testing.T) {
	b := bustest.Open(t)
	b.RefuseEvents("a", "first")
	b.RefuseEvents("b", "second")
	if err := b.AcceptsEvents(); err == nil || !strings.Contains(err.Error(), "first; second") {
		t.Fatalf("AcceptsEvents: %v", err)
	}
	b.RefuseEvents("a", "")
	if err := b.AcceptsEvents(); err == nil || strings.Contains(err.Error(), "first") {
		t.Fatalf("AcceptsEvents: %v", err)
	}
	b.RefuseEvents("b", "")
	if err := b.AcceptsEvents(); err != nil {
		t.Fatalf("AcceptsEvents: %v", err)
	}
}

// tryPublish publishes for as long as a sender would wait at most.
func tryPublish(b *bus.Bus, subject string, size int) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m := nats.NewMsg(subject)
	m.Data = make([]byte, size)
	seq, err := b.Publish(ctx, m)
	if err != nil {
		return 0, err
	}
	return seq, b.Sync(ctx)
}

func TestServerIsReplacedAfterAFullDisk(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, mode := range []string{bus.SyncGroup, bus.SyncAlways} {
		t.Run(mode, func(t *testing.T) {
			dir := disk.Tmpfs(t, 64<<20)
			b := bustest.Open(t, bustest.Store(dir), bustest.Sync(mode), bustest.Listen())
			if err := b.EnsureApp("orders"); err != nil {
				t.Fatal(err)
			}
			address := b.AppFor("orders").URL
			free := disk.Fill(t, dir, 2<<20)
			acked := map[uint64]string{}
			failed := ""
			for i := 0; failed == ""; i++ {
				subject := b.Names.Event("github", "0", fmt.Sprint("n", i))
				seq, err := tryPublish(b, subject, 200<<10)
				switch {
				case err == nil:
					acked[seq] = subject
				case errors.Is(err, triggerd.ErrUnavailable):
					failed = subject
				default:
					t.Fatal(err)
				}
			}
			if len(acked) == 0 {
				t.Fatal("nothing was stored before the disk was full")
			}
			eventually(t, "events are refused", func() bool { return b.AcceptsEvents() != nil })
			free()
			eventually(t, "events are accepted again", func() bool { return b.AcceptsEvents() == nil && b.Writable() == nil })
			if n := b.Restarts(); n != 1 {
				t.Errorf("%d restarts, want 1", n)
			}
			eventually(t, "the event that failed is stored or known", func() bool {
				_, err := tryPublish(b, failed, 10)
				return err == nil || errors.Is(err, bus.ErrExists)
			})
			for seq, subject := range acked {
				m, err := b.At(bustest.Context(t), b.Events, seq)
				if err != nil || m.Subject != subject || len(m.Data) != 200<<10 {
					t.Errorf("message %d, which was acknowledged: %v", seq, err)
				}
			}
			if now := b.AppFor("orders").URL; now != address {
				t.Errorf("apps must go to %s now, it was %s", now, address)
			}
			mustConnect(t, readCredentials(t, b.AppFor("orders")))
			t.Logf("%d events stored before the disk was full, all there after it", len(acked))
		})
	}
}

func TestSilentStreamIsNoticedAndAskedAgain(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir := t.TempDir()
	srv := bustest.Server(t, dir, 0)
	b := bustest.External(t, srv.ClientURL())
	mustPublish(t, b, b.Names.Event("github", "0", "a"))
	before := b.Events.CachedInfo().State.LastSeq
	if err := srv.ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	if _, err := tryPublish(b, b.Names.Event("github", "0", "b"), 10); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("publish: %v", err)
	}
	eventually(t, "the silence shows", func() bool { return b.Writable() != nil })
	if err := b.Writable(); !strings.Contains(err.Error(), "does not answer writes to triggerd_EVENTS") {
		t.Fatalf("Writable: %v", err)
	}
	if err := srv.EnableJetStream(&server.JetStreamConfig{StoreDir: dir}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is asked again, without any publish of ours", func() bool { return b.Writable() == nil })
	info, err := b.Events.Info(bustest.Context(t))
	if err != nil || info.State.LastSeq > before+1 {
		t.Fatalf("asking has stored something: %d after %d, %v", info.State.LastSeq, before, err)
	}
}

func TestExternalServerComesBack(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir := t.TempDir()
	srv := bustest.Server(t, dir, 0)
	b := bustest.External(t, srv.ClientURL())
	mustPublish(t, b, b.Names.Event("github", "0", "a"))
	port := srv.Addr().(*net.TCPAddr).Port
	srv.Shutdown()
	srv.WaitForShutdown()
	if _, err := tryPublish(b, b.Names.Event("github", "0", "b"), 10); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("publish: %v", err)
	}
	if err := b.Writable(); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("Writable: %v", err)
	}
	bustest.Server(t, dir, port)
	eventually(t, "the event is stored", func() bool {
		_, err := tryPublish(b, b.Names.Event("github", "0", "b"), 10)
		return err == nil
	})
	eventually(t, "it is writable", func() bool { return b.Writable() == nil })
	if _, err := publish(t, b, b.Names.Event("github", "0", "a")); !errors.Is(err, bus.ErrExists) {
		t.Fatalf("the event from before: %v", err)
	}
}
