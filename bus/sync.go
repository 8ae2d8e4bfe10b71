package bus

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
)

// syncer is the group commit of `sync: group` (design §4): one sync of the store's file system serves every append that
// was acknowledged by the server before that sync began. The server has written to the page cache by then, so when the sync returns
// the append survives a power loss, as it would with one fsync per message.
type syncer struct {
	dir *os.File // kept open: the kernel reports a write-back error to descriptors that were open when it happened

	mu      sync.Mutex
	flush   func(*os.File) error
	wake    *sync.Cond
	next    *syncRound // waiters of the round that has not started
	err     error      // sticky: after a failed sync nothing is known to be on the disk until the server has restarted
	stopped bool
	done    chan struct{}
}

// Under load a round that begins the moment the one before it ends serves only the few appends that came meanwhile, and each sync costs
// the same. So after a round with gatherFrom waiters the next one gives others gatherFor to join; a lone writer never waits for company.
const (
	gatherFrom = 12
	gatherFor  = 2 * time.Millisecond
)

type syncRound struct {
	done chan struct{}
	err  error
	n    int
}

func newSyncer(dir string) (*syncer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open store for syncing: %w", err)
	}
	s := &syncer{dir: f, flush: syncFileSystem, next: &syncRound{done: make(chan struct{})}, done: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	go s.run()
	return s, nil
}

// Sync blocks until everything that was written before the call is on the device. After a failure every call fails until reset.
func (s *syncer) Sync(ctx context.Context) error {
	s.mu.Lock()
	if s.err != nil || s.stopped {
		err := s.err
		s.mu.Unlock()
		return fmt.Errorf("sync store: %w: %w", triggerd.ErrUnavailable, errOr(err, os.ErrClosed))
	}
	r := s.next
	r.n++
	s.wake.Signal()
	s.mu.Unlock()
	select {
	case <-r.done:
		if r.err != nil {
			return fmt.Errorf("sync store: %w: %w", triggerd.ErrUnavailable, r.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sync store: %w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
	}
}

func (s *syncer) run() {
	defer close(s.done)
	for last := 0; ; {
		if last >= gatherFrom {
			time.Sleep(gatherFor)
		}
		s.mu.Lock()
		for s.next.n == 0 && !s.stopped {
			s.wake.Wait()
		}
		r := s.next
		if r.n == 0 {
			s.mu.Unlock()
			return
		}
		last = r.n
		s.next = &syncRound{done: make(chan struct{})}
		err, flush := s.err, s.flush
		s.mu.Unlock()

		if err == nil {
			err = flush(s.dir)
		}
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
		s.mu.Unlock()
		r.err = err
		close(r.done)
	}
}

// failed is the sticky error, nil while syncing works.
func (s *syncer) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// reset forgets a failure. Call it only after the server has been restarted and has read back what is on the disk.
func (s *syncer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

// close serves the waiters and stops. Later calls of Sync fail.
func (s *syncer) close() {
	s.mu.Lock()
	s.stopped = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.done
	_ = s.dir.Close()
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
