package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func recv[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// rig is an engine on a real embedded store, and survives the crashes of both.
type rig struct {
	*testing.T
	store  string
	specs  map[string]*Spec
	change func(*Options)
	epoch  uint64
	*life
}

// life is one daemon's time on the store.
type life struct {
	bus       *bus.Bus
	engine    *Engine
	recovered Recovered
	finals    chan Info
	stop      context.CancelFunc
	ran       chan error // what Run returned
	crashed   bool
}

// setup starts an engine with these triggers.
func setup(t *testing.T, specs ...*Spec) *rig {
	t.Helper()
	r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{}}
	for _, s := range specs {
		r.specs[s.Key] = s
	}
	r.start()
	return r
}

// start opens the store and runs the next epoch's engine on it.
func (r *rig) start() {
	r.Helper()
	r.open()
	r.goOn()
}

func (r *rig) open() {
	r.Helper()
	b, err := bus.Open(r.Context(), bus.Options{
		Prefix: "triggerd", Embedded: &bus.EmbeddedOptions{Store: r.store, Sync: bus.SyncInterval, Listen: "off"}, Log: zerolog.Nop(),
	})
	if err != nil {
		r.Fatal(err)
	}
	r.on(b)
	r.Cleanup(b.Close)
}

// on makes the next epoch's engine, which has not recovered anything yet.
func (r *rig) on(b *bus.Bus) {
	r.epoch++
	l := &life{bus: b, finals: make(chan Info, 1<<16), ran: make(chan error, 1)}
	o := Options{
		Bus: b, Daemon: fmt.Sprintf("d%d", r.epoch), Epoch: r.epoch, Concurrency: 16, Retention: time.Hour, Log: zerolog.Nop(),
		OnFinal: func(_ context.Context, i Info) error { l.finals <- i; return nil },
	}
	if r.change != nil {
		r.change(&o)
	}
	l.engine = New(o)
	r.life = l
}

// goOn recovers and runs the engine.
func (r *rig) goOn() {
	r.Helper()
	r.engine.SetTriggers(r.specs)
	found, err := r.engine.Recover(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	r.recovered = found
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	l := r.life
	go func() { l.ran <- l.engine.Run(ctx) }()
	r.Cleanup(func() { l.end(r.T) })
}

func (l *life) end(t *testing.T) {
	l.stop()
	if l.crashed {
		l.engine.stopAll() // there is no store to record anything in
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what still runs is cut short
	l.engine.Drain(ctx)
	recv(t, l.ran, "Run to return")
}

// crash ends this life as kill -9 does, as far as the store can see: nothing is written from here on.
func (r *rig) crash() {
	r.Helper()
	r.engine.mu.Lock()
	r.engine.stopping = true // a dead process starts nothing
	r.engine.mu.Unlock()
	r.crashed = true
	r.bus.Close()
}

// restart is a crash and a start.
func (r *rig) restart() {
	r.Helper()
	r.crash()
	r.start()
}

// ask asks for a turn of this trigger and event id.
func ask(trigger, id, lane string) triggerd.Opening {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ev := &triggerd.Event{
		Connection: "c", Subscription: "0", ID: id, Type: "x.y", Time: now, Received: now, ContentType: "text/plain", Payload: []byte("payload of " + id),
	}
	return triggerd.Opening{
		Key: triggerd.TurnKey{Connection: "c", Trigger: trigger, EventID: id}, Event: ev, Thread: lane, Lane: lane, Version: "v1",
	}
}

func hashOf(trigger, id string) string {
	return triggerd.TurnKey{Connection: "c", Trigger: trigger, EventID: id}.Hash()
}

func (r *rig) openTurns(os ...triggerd.Opening) {
	r.Helper()
	if err := r.engine.Open(r.Context(), os); err != nil {
		r.Fatal(err)
	}
}

// final waits for the next final or parked turn.
func (r *rig) final() Info {
	r.Helper()
	return recv(r.T, r.finals, "a turn to end")
}

// want waits for the next final turn and checks which it is.
func (r *rig) want(id string, s State) Info {
	r.Helper()
	i := r.final()
	if i.Key.EventID != id || i.State != s {
		r.Fatalf("turn %s ended as %s (%s), want %s %s", i.Key, i.State, i.Cause, id, s)
	}
	return i
}

// get reads a turn that must be there.
func (r *rig) get(hash string) Info {
	r.Helper()
	i, err := r.engine.Get(r.Context(), hash)
	if err != nil || i == nil {
		r.Fatalf("get %s: %v, %v", hash, i, err)
	}
	return *i
}

func (r *rig) state(trigger, id string, want State) Info {
	r.Helper()
	i := r.get(hashOf(trigger, id))
	if i.State != want {
		r.Fatalf("turn %s is %s (%s), want %s", id, i.State, i.Cause, want)
	}
	return i
}

// until polls what has no signal of its own, with the engine's own pace.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline, tick := time.After(patience), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			r.Fatalf("waited %v until %s", patience, what)
		}
	}
}

// tally counts the turns in each state.
func (r *rig) tally() map[State]int {
	r.Helper()
	all, err := r.engine.List(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	out := map[State]int{}
	for _, i := range all {
		out[i.State]++
	}
	return out
}

// call is an attempt that waits for the test's verdict.
type call struct {
	*Attempt
	ctx context.Context
	out chan triggerd.Outcome
}

func (c *call) done() { c.out <- triggerd.Outcome{Verb: triggerd.Done} }
func (c *call) fail(cause string) {
	c.out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: cause}
}

// manual hands each attempt to the test.
type manual struct {
	calls chan *call
	needs bool // a running entry comes first
}

func newManual() *manual { return &manual{calls: make(chan *call, 4096)} }

func (m *manual) NeedsRunning() bool { return m.needs }

func (m *manual) Run(ctx context.Context, a *Attempt) triggerd.Outcome {
	if m.needs {
		if err := a.Started(ctx, Process{Host: "h", Group: 4711, Started: "1"}); err != nil {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: err.Error()}
		}
	}
	c := &call{Attempt: a, ctx: ctx, out: make(chan triggerd.Outcome, 1)}
	m.calls <- c
	select {
	case o := <-c.out:
		return o
	case <-ctx.Done():
		return triggerd.Outcome{Verb: triggerd.Retry, Cause: context.Cause(ctx).Error()}
	}
}

// next waits for the next attempt and checks whose it is.
func (m *manual) next(t *testing.T, id string) *call {
	t.Helper()
	c := recv(t, m.calls, "an attempt of "+id)
	if c.Key.EventID != id {
		t.Fatalf("attempt of %s, want %s", c.Key, id)
	}
	return c
}

func (m *manual) idle(t *testing.T) {
	t.Helper()
	select {
	case c := <-m.calls:
		t.Fatalf("unexpected attempt %d of %s", c.Number, c.Key)
	default:
	}
}

// auto answers by itself and remembers whom it ran, in order.
type auto struct {
	f   func(a *Attempt) triggerd.Outcome
	mu  sync.Mutex
	log []string
}

func (*auto) NeedsRunning() bool { return false }

func (x *auto) Run(_ context.Context, a *Attempt) triggerd.Outcome {
	x.mu.Lock()
	x.log = append(x.log, a.Key.EventID)
	x.mu.Unlock()
	if x.f == nil {
		return triggerd.Outcome{Verb: triggerd.Done}
	}
	return x.f(a)
}

func (x *auto) ran() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.log)
}

// trigger makes a spec that retries at once.
func trigger(key string, a Action) *Spec {
	return &Spec{
		Key: key, Name: key, Action: a, Hash: "h-" + key, Overlap: OverlapQueue, Timeout: time.Hour, OnCrash: OnCrashRetry,
		Retry: RetryPolicy{Attempts: 4, Initial: time.Millisecond, Max: time.Millisecond},
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}
