package bus

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

func TestSilenceIsPerStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silence{since: map[string]time.Time{}}
		s.answered("EVENTS")
		s.unanswered("EVENTS", time.Now())
		s.unanswered("", time.Now()) // none of ours
		time.Sleep(time.Second)      // fake time
		s.unanswered("EVENTS", time.Now())
		s.unanswered("TURNS", time.Now())
		if got := s.of(900 * time.Millisecond); !slices.Equal(got, []string{"EVENTS"}) {
			t.Fatalf("silent: %v", got)
		}
		s.answered("TURNS") // one that works does not hide the other
		time.Sleep(time.Second)
		if got := s.of(time.Second); !slices.Equal(got, []string{"EVENTS"}) {
			t.Fatalf("silent: %v", got)
		}
		s.answered("EVENTS")
		if got := s.of(0); got != nil {
			t.Fatalf("silent: %v", got)
		}
	})
}

func TestTheSameCauseIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth()
		n := 0
		for range 100 {
			if h.once("slow consumer") {
				n++
			}
			time.Sleep(100 * time.Millisecond) // fake time
		}
		if n != 10 {
			t.Fatalf("logged %d times in 10 s", n)
		}
		if !h.once("another") {
			t.Fatal("another cause was held back")
		}
	})
}

// A failed sync leaves it open what is on the disk: appends fail until a fresh server has read that back.
func TestServerIsReplacedAfterAFailedSync(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := Open(ctx, Options{Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: t.TempDir(), Sync: SyncGroup, Reserve: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	subject := b.Names.Event("github", "0", "a")
	if _, err := b.Publish(ctx, nats.NewMsg(subject)); err != nil {
		t.Fatal(err)
	}
	if err := b.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("input/output error")
	var fail atomic.Bool
	fail.Store(true)
	b.syncer.mu.Lock()
	b.syncer.flush = func(f *os.File) error {
		if fail.Swap(false) {
			return broken
		}
		return syncFileSystem(f)
	}
	b.syncer.mu.Unlock()
	if err := b.Sync(ctx); !errors.Is(err, broken) || !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("sync: %v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for b.Sync(ctx) != nil || b.Writable() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the store does not recover")
		}
	}
	if n := b.Restarts(); n != 1 {
		t.Fatalf("%d restarts, want 1", n)
	}
	if _, err := b.Publish(ctx, nats.NewMsg(subject)); !errors.Is(err, ErrExists) {
		t.Fatalf("the event from before: %v", err)
	}
}
