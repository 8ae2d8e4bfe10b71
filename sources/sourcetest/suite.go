package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

// Upstream is a little world that a source watches. It outlives the sources over it, as a real one outlives the daemon.
type Upstream interface {
	// Source returns a source over this upstream, as the daemon would build it at a start.
	Source(t *testing.T) sources.Source
	// Happen makes the n-th thing happen (n counts from 1) and returns when it has, whether or not a source is running.
	Happen(t *testing.T, n int)
	// Number tells which thing an event stands for; 0 for none of them.
	Number(ev triggerd.Event) int
}

// Harness describes a source to the suite.
type Harness struct {
	New func(t *testing.T) Upstream // a fresh upstream for one test
	// Invalid makes something happen that can never become a valid event. Nil when the upstream cannot do that.
	Invalid func(t *testing.T, u Upstream)
	// FirstCursor says that the first start ever stores a cursor, and that only what happens later counts.
	FirstCursor bool
	// MayRepeat says that a restart may send again what was stored shortly before it (duplicates, never new events).
	MayRepeat bool
	// Bubble runs each test in fake time (testing/synctest).
	Bubble bool
	// Timeout bounds each wait; 0 = 20 s.
	Timeout time.Duration
}

// Run holds a source to the contract of [sources.Source]: everything that happened is emitted once and in order, through outages,
// lost answers and restarts; being fenced or told to stop ends it; nothing is left behind.
func Run(t *testing.T, h Harness) {
	if h.Timeout == 0 {
		h.Timeout = 20 * time.Second
	}
	cases := []struct {
		name string
		test func(*bench)
	}{
		{"emits what happened in order", inOrder},
		{"an unavailable store loses nothing", unavailable},
		{"a lost answer repeats the same id", lostAnswer},
		{"a restart from the stored cursor repeats and loses nothing", restart},
		{"a stop during an outage loses nothing", stopDuringOutage},
		{"being fenced ends it", fenced},
		{"a stop ends it promptly", stopsPromptly},
		{"an invalid event is skipped", invalid},
	}
	for _, c := range cases {
		if c.name == "an invalid event is skipped" && h.Invalid == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.test(newBench(t, h)) })
				return
			}
			c.test(newBench(t, h))
		})
	}
}

// bench is one test's upstream, store and running source.
type bench struct {
	t      *testing.T
	h      Harness
	up     Upstream
	mem    *Memory
	status *sources.Status
	cancel context.CancelFunc
	ended  chan error
}

func newBench(t *testing.T, h Harness) *bench {
	b := &bench{t: t, h: h, up: h.New(t), mem: NewMemory("suite")}
	t.Cleanup(func() {
		if b.cancel != nil {
			b.cancel()
			<-b.ended
		}
	})
	return b
}

// start runs a source with what the store holds, as the supervisor does.
func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	rt := b.mem.Runtime()
	first := rt.Cursor == nil
	b.status, b.cancel, b.ended = rt.Status, cancel, make(chan error, 1)
	rt.Emit = sources.Observe(rt.Emit, rt.Status)
	src, ended := b.up.Source(b.t), b.ended
	go func() { ended <- src.Run(ctx, rt) }()
	if first && b.h.FirstCursor {
		b.within(b.mem.WaitCursor)
	}
}

// stop tells the source to stop and checks how it ends.
func (b *bench) stop() {
	b.t.Helper()
	b.cancel()
	err := b.end()
	b.cancel = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		b.t.Fatalf("a stop must return nil or the context's error, got %v", err)
	}
}

// end waits for Run to return.
func (b *bench) end() error {
	b.t.Helper()
	select {
	case err := <-b.ended:
		b.ended <- err // the clean-up reads it again
		return err
	case <-time.After(b.h.Timeout):
		b.t.Fatalf("Run did not return within %v", b.h.Timeout)
		return nil
	}
}

func (b *bench) within(wait func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.h.Timeout)
	defer cancel()
	if err := wait(ctx); err != nil {
		b.t.Fatalf("%v; status: %+v", err, b.status.Snapshot())
	}
}

// happen makes things first..last happen, each after the one before was noticed where a source runs.
func (b *bench) happen(first, last int) {
	b.t.Helper()
	for n := first; n <= last; n++ {
		b.up.Happen(b.t, n)
	}
}

// want waits until the things 1..n are stored and checks that they are, once each and in order.
func (b *bench) want(n int) {
	b.t.Helper()
	b.within(func(ctx context.Context) error { return b.mem.Wait(ctx, n) })
	var got, want []int
	ids := make(map[string]bool)
	for _, ev := range b.mem.Events() {
		got = append(got, b.up.Number(ev))
		if ids[ev.ID] {
			b.t.Errorf("id %q was stored twice", ev.ID)
		}
		ids[ev.ID] = true
	}
	for i := range n {
		want = append(want, i+1)
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("stored %v, want %v", got, want)
	}
}

func unavailableNow() error { return fmt.Errorf("%w: disk is full", triggerd.ErrUnavailable) }

func inOrder(b *bench) {
	b.start()
	b.happen(1, 5)
	b.want(5)
	b.stop()
	if got := b.status.Snapshot().Events; got < 5 {
		b.t.Errorf("status counts %d events, want 5", got)
	}
}

func unavailable(b *bench) {
	b.start()
	b.mem.FailNext(3, unavailableNow())
	b.happen(1, 1)
	b.want(1)
	b.happen(2, 2)
	b.want(2)
	b.stop()
}

func lostAnswer(b *bench) {
	b.start()
	b.mem.LoseAnswer(1, unavailableNow())
	b.happen(1, 1)
	b.within(func(ctx context.Context) error {
		return b.mem.waitFor(ctx, "a repeat", func() bool { return len(b.mem.duplicates) > 0 })
	})
	b.happen(2, 2)
	b.want(2)
	b.stop()
	if first := b.mem.Events()[0].ID; b.mem.Duplicates()[0] != first {
		b.t.Errorf("the repeat came as %q, the event was stored as %q", b.mem.Duplicates()[0], first)
	}
}

func restart(b *bench) {
	b.start()
	b.happen(1, 2)
	b.want(2)
	b.stop()
	b.happen(3, 3)
	b.start()
	b.want(3)
	b.happen(4, 4)
	b.want(4)
	b.stop()
	if d := b.mem.Duplicates(); len(d) > 0 && !b.h.MayRepeat {
		b.t.Errorf("the restart repeated %q", d)
	}
}

func stopDuringOutage(b *bench) {
	b.start()
	b.happen(1, 1)
	b.want(1)
	before := b.mem.Calls()
	b.mem.FailNext(1_000_000, unavailableNow())
	b.happen(2, 2)
	b.within(func(ctx context.Context) error { return b.mem.WaitCalls(ctx, before+2) })
	b.stop()
	b.mem.Heal()
	b.start()
	b.want(2)
	b.stop()
}

func fenced(b *bench) {
	b.start()
	b.mem.Fence()
	b.happen(1, 1)
	if err := b.end(); !errors.Is(err, triggerd.ErrFenced) {
		b.t.Fatalf("Run returned %v, want ErrFenced", err)
	}
	if n := len(b.mem.Events()); n != 0 {
		b.t.Errorf("%d events were stored after the fence", n)
	}
}

func stopsPromptly(b *bench) {
	b.start()
	b.happen(1, 1)
	b.want(1)
	began := time.Now()
	b.stop()
	if took := time.Since(began); took > 5*time.Second {
		b.t.Errorf("the stop took %v", took)
	}
	b.up.Happen(b.t, 2)
	b.want(1)
}

func invalid(b *bench) {
	b.start()
	b.h.Invalid(b.t, b.up)
	b.happen(1, 1)
	b.want(1)
	b.stop()
	if b.status.Snapshot().Rejected == 0 {
		b.t.Error("the status does not count the rejected event")
	}
}
