package bus

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/triggerd/triggerd"
)

// stepped is a syncer whose flushes begin and end when the test says so.
type stepped struct {
	*syncer
	began chan struct{}
	end   chan error
	n     atomic.Int32
}

func newStepped(t *testing.T) *stepped {
	t.Helper()
	s, err := newSyncer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	st := &stepped{syncer: s, began: make(chan struct{}), end: make(chan error)}
	s.flush = func(*os.File) error {
		st.n.Add(1)
		st.began <- struct{}{}
		return <-st.end
	}
	t.Cleanup(func() {
		select {
		case <-s.done:
		default:
			s.close()
		}
	})
	return st
}

func (s *stepped) syncs(n int) chan error {
	results := make(chan error, n)
	for range n {
		go func() { results <- s.Sync(context.Background()) }()
	}
	synctest.Wait()
	return results
}

func TestSyncWaitsForAFlushThatBeganAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t)
		first := s.syncs(1)
		<-s.began
		second := s.syncs(1) // the flush that runs began before this call, so it may have missed its write
		s.end <- nil
		synctest.Wait()
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		select {
		case <-second:
			t.Fatal("Sync returned with a flush that had begun before it")
		default:
		}
		<-s.began
		s.end <- nil
		if err := <-second; err != nil {
			t.Fatal(err)
		}
	})
}

func TestManySyncsShareOneFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t)
		first := s.syncs(1)
		<-s.began
		rest := s.syncs(100)
		s.end <- nil
		<-first
		<-s.began
		s.end <- nil
		for range 100 {
			if err := <-rest; err != nil {
				t.Fatal(err)
			}
		}
		if n := s.n.Load(); n != 2 {
			t.Fatalf("%d flushes for 101 syncs, want 2", n)
		}
	})
}

func TestAFailedFlushFailsEverySyncUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t)
		broken := errors.New("device is gone")
		first := s.syncs(1)
		<-s.began
		waiting := s.syncs(2) // joined before the failure: they must not be told that all is well by a later flush
		s.end <- broken
		for _, r := range []chan error{first, waiting, waiting} {
			if err := <-r; !errors.Is(err, broken) || !errors.Is(err, triggerd.ErrUnavailable) {
				t.Fatalf("sync: %v", err)
			}
		}
		if err := s.Sync(context.Background()); !errors.Is(err, broken) {
			t.Fatalf("sync after the failure: %v", err)
		}
		if n := s.n.Load(); n != 1 {
			t.Fatalf("%d flushes, want none after the failed one", n)
		}
		s.reset()
		again := s.syncs(1)
		<-s.began
		s.end <- nil
		if err := <-again; err != nil || s.failed() != nil {
			t.Fatalf("sync after the reset: %v, %v", err, s.failed())
		}
	})
}

func TestSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- s.Sync(ctx) }()
		<-s.began
		if err := <-result; !errors.Is(err, triggerd.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("sync: %v", err)
		}
		s.end <- nil
	})
}

func TestSyncerCloseServesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t)
		first := s.syncs(1)
		<-s.began
		second := s.syncs(1)
		var closed sync.WaitGroup
		closed.Go(s.close)
		synctest.Wait()
		if err := s.Sync(context.Background()); !errors.Is(err, os.ErrClosed) || !errors.Is(err, triggerd.ErrUnavailable) {
			t.Fatalf("sync while closing: %v", err)
		}
		s.end <- nil
		<-s.began
		s.end <- nil
		closed.Wait()
		if err := errors.Join(<-first, <-second); err != nil {
			t.Fatal(err)
		}
	})
}
