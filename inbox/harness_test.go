package inbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// turnFor opens one turn for every event.
type turnFor struct{}

func (turnFor) Decide(ev *triggerd.Event) []triggerd.Opening {
	return []triggerd.Opening{{Key: triggerd.TurnKey{Connection: ev.Connection, Trigger: "t", EventID: ev.ID}, Event: ev}}
}

type decide func(ev *triggerd.Event) []triggerd.Opening

func (d decide) Decide(ev *triggerd.Event) []triggerd.Opening { return d(ev) }

// recorder is an Opener that remembers, and behaves as hook says.
type recorder struct {
	hook func(ctx context.Context, call int) error // before anything is remembered; nil = none

	mu      sync.Mutex
	calls   int
	opened  []triggerd.Opening
	unique  []string // ids in the order of their first opening
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) Open(ctx context.Context, openings []triggerd.Opening) error {
	r.mu.Lock()
	r.calls++
	call := r.calls
	r.mu.Unlock()
	if r.hook != nil {
		if err := r.hook(ctx, call); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range openings {
		r.opened = append(r.opened, o)
		if !slices.Contains(r.unique, o.Event.ID) {
			r.unique = append(r.unique, o.Event.ID)
		}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

func (r *recorder) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.unique)
}

func (r *recorder) openings() []triggerd.Opening {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.opened)
}

// await blocks until n different events have opened turns.
func (r *recorder) await(t testing.TB, n int) {
	t.Helper()
	r.until(t, func(ids []string) bool { return len(ids) >= n })
}

// awaitID blocks until this event has opened turns.
func (r *recorder) awaitID(t testing.TB, id string) {
	t.Helper()
	r.until(t, func(ids []string) bool { return slices.Contains(ids, id) })
}

func (r *recorder) until(t testing.TB, ok func(ids []string) bool) {
	t.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for !ok(r.ids()) {
		select {
		case <-r.changed:
		case <-late.C:
			t.Fatalf("only these %d events have opened turns: %v", len(r.ids()), r.ids())
		}
	}
}

// running is a Consumer in its goroutine.
type running struct {
	*Consumer
	stop func() error
}

func start(t testing.TB, b *bus.Bus, connection string, epoch int, o Opener, change ...func(*Consumer)) *running {
	t.Helper()
	c := &Consumer{
		Bus: b, Connection: connection, Epoch: strconv.Itoa(epoch), Opener: o, Log: zerolog.Nop(),
		Decider: func(uint64) (Decider, error) { return turnFor{}, nil },
	}
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithCancel(bustest.Context(t))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r := &running{Consumer: c}
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func ns(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("n", i)
	}
	return ids
}

func readersOf(t testing.TB, b *bus.Bus, connection string) map[reader]*jetstream.ConsumerInfo {
	t.Helper()
	found, err := (&Consumer{Bus: b, Connection: connection}).readers(bustest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// floorOf is up to where a connection's one reader has acknowledged.
func floorOf(t testing.TB, b *bus.Bus, connection string) uint64 {
	t.Helper()
	for _, info := range readersOf(t, b, connection) {
		return info.AckFloor.Stream
	}
	return 0
}
