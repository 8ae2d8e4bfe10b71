package turns

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// fleet is several daemons on one NATS server that share the turns. Who owns what is decided by the test, as leases would.
type fleet struct {
	*testing.T
	url    string
	specs  func(m *member) map[string]*Spec
	change func(*Options)

	mu     sync.Mutex
	owners map[Part]*runner
	epochs map[Part]uint64
	made   int
}

// member is one daemon: a connection, an engine that opens turns, one reader, slots, and an engine for each of its partitions.
type member struct {
	f        *fleet
	name     string
	bus      *bus.Bus
	opener   *Engine
	follower *Follower
	slots    *Slots
	finals   chan Info
	frozen   atomic.Bool
	dead     atomic.Bool
	unread   context.CancelFunc // ends the follower
	read     chan struct{}      // closed when it has ended
	runners  []*runner
}

// runner is one engine's time on a partition.
type runner struct {
	*Engine
	m         *member
	part      Part
	recovered Recovered
	gate      gate
	stop      context.CancelFunc
	ran       chan error
	gone      sync.Once
}

func newFleet(t *testing.T, specs ...*Spec) *fleet {
	t.Helper()
	all := map[string]*Spec{}
	for _, s := range specs {
		all[s.Key] = s
	}
	return &fleet{
		T: t, url: natsServer(t), specs: func(*member) map[string]*Spec { return all }, owners: map[Part]*runner{}, epochs: map[Part]uint64{},
	}
}

// join starts a daemon that owns nothing yet.
func (f *fleet) join() *member {
	f.Helper()
	return f.joinOn(connect(f.T, f.url))
}

func (f *fleet) joinOn(b *bus.Bus) *member {
	f.Helper()
	f.made++
	m := &member{f: f, name: fmt.Sprint("d", f.made), bus: b, slots: NewSlots(8), finals: make(chan Info, 1<<14), read: make(chan struct{})}
	m.follower = NewFollower(b, zerolog.Nop())
	m.opener = New(m.options(nil))
	m.opener.SetTriggers(f.specs(m))
	if err := m.opener.LoadLanes(f.Context(), "*"); err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.unread = stop
	go func() {
		defer close(m.read)
		m.follower.Run(ctx)
	}()
	f.Cleanup(m.leave)
	return m
}

func (m *member) options(p *Part) Options {
	o := Options{
		Bus: m.bus, Daemon: m.name, Shared: true, Part: p, Retention: time.Hour, Log: zerolog.Nop(),
		OnFinal: func(_ context.Context, i Info) error { m.finals <- i; return nil },
	}
	if p != nil {
		o.Follower, o.Slots = m.follower, m.slots
	}
	if m.f.change != nil {
		m.f.change(&o)
	}
	return o
}

// own takes over a partition, whoever has it: what that one does from here on must not count.
func (m *member) own(p Part) *runner {
	m.f.Helper()
	r, err := m.tryOwn(p)
	if err != nil {
		m.f.Fatal(err)
	}
	return r
}

func (m *member) tryOwn(p Part) (*runner, error) {
	r := m.prepare(p)
	if err := r.begin(); err != nil {
		return r, err
	}
	return r, nil
}

// prepare makes the engine of the partition's next owner.
func (m *member) prepare(p Part) *runner {
	f := m.f
	r := &runner{m: m, part: p, ran: make(chan error, 1)}
	o := m.options(&p)
	f.mu.Lock()
	f.epochs[p]++
	o.Epoch = f.epochs[p]
	f.owners[p] = r
	m.runners = append(m.runners, r)
	f.mu.Unlock()
	o.Alive = func() bool { return r.gate.alive(r.owns) }
	r.Engine = New(o)
	r.SetTriggers(f.specs(m))
	return r
}

// begin recovers and runs.
func (r *runner) begin() error {
	found, err := r.Recover(r.m.f.Context())
	if err != nil {
		return err
	}
	r.recovered = found
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ran <- r.Run(ctx) }()
	return nil
}

// owns is what a lease would tell.
func (r *runner) owns() bool {
	r.m.f.mu.Lock()
	defer r.m.f.mu.Unlock()
	return !r.m.frozen.Load() && !r.m.dead.Load() && r.m.f.owners[r.part] == r
}

// end stops the engine, letting what runs end until ctx does.
func (r *runner) end(ctx context.Context) {
	r.gone.Do(func() {
		r.gate.open()
		if r.m.dead.Load() {
			r.stopAll() // there is no store to record anything in
		}
		if r.stop != nil {
			r.stop()
		}
		r.Drain(ctx)
		if r.stop != nil {
			recv(r.m.f.T, r.ran, "Run to return")
		}
	})
}

// fenced waits until the engine has learned that it was overtaken.
func (r *runner) fenced() {
	r.m.f.Helper()
	err := recv(r.m.f.T, r.ran, "the overtaken engine's Run to return")
	r.ran <- nil // for end
	wantErr(r.m.f.T, err, triggerd.ErrFenced)
}

// leave stops a daemon at once.
func (m *member) leave() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // what still runs is cut short
	for _, r := range m.runners {
		r.end(now)
	}
	m.unread()
	recv(m.f.T, m.read, "the follower to end")
	m.opener.Drain(now)
}

// kill ends a daemon as kill -9 does: nothing is written from here on.
func (m *member) kill() {
	m.dead.Store(true)
	m.f.mu.Lock()
	runners := m.runners
	m.f.mu.Unlock()
	for _, r := range runners {
		r.mu.Lock()
		r.stopping = true // a dead process starts nothing
		r.mu.Unlock()
	}
	m.bus.Close()
}

func (m *member) open(os ...triggerd.Opening) {
	m.f.Helper()
	if err := m.opener.Open(m.f.Context(), os); err != nil {
		m.f.Fatal(err)
	}
}

// until polls what has no signal of its own.
func (f *fleet) until(what string, ok func() bool) {
	f.Helper()
	(&rig{T: f.T}).until(what, ok)
}

// state reads how a turn stands in the ledger.
func (m *member) state(hash string) Info {
	m.f.Helper()
	i, err := m.opener.Get(m.f.Context(), hash)
	if err != nil || i == nil {
		m.f.Fatalf("turn %s: %v, %v", hash, i, err)
	}
	return *i
}

// ends waits until the daemon has told of these ends; others do not matter.
func (m *member) ends(want map[string]State) {
	m.f.Helper()
	for len(want) > 0 {
		i := recv(m.f.T, m.finals, fmt.Sprint("the ends of ", want))
		if s, ok := want[i.Key.EventID]; ok && i.State != s {
			m.f.Errorf("%s is %s (%s), want %s", i.Key, i.State, i.Cause, s)
		}
		delete(want, i.Key.EventID)
	}
}

// history is a turn's ledger.
func (m *member) history(hash string) []HistoryEntry {
	m.f.Helper()
	d, err := m.opener.Show(m.f.Context(), hash)
	if err != nil {
		m.f.Fatal(err)
	}
	return d.History
}

// gate freezes an engine between being told that it is the owner and doing what it asked for.
type gate struct {
	mu      sync.Mutex
	reached chan struct{} // closed when the engine stands at the gate; nil = nobody is to be stopped
	opened  chan struct{}
}

// arm stops the next who asks.
func (g *gate) arm() (reached <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reached, g.opened = make(chan struct{}), make(chan struct{})
	return g.reached
}

// open lets go who stands there, with the answer that it got before.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.reached, g.opened = nil, nil
	}
}

func (g *gate) alive(ask func() bool) bool {
	is := ask()
	g.mu.Lock()
	reached, opened := g.reached, g.opened
	g.reached = nil // the next one may pass
	g.mu.Unlock()
	if is && reached != nil {
		close(reached)
		<-opened
	}
	return is
}

// partOf is where a lane's turns are.
func partOf(lane string) Part {
	var n int
	_, _ = fmt.Sscan(partition(lane), &n)
	return Part{Pool: DefaultPool, Number: n}
}

// lanesIn names n lanes whose turns are in one partition.
func lanesIn(p Part, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if l := fmt.Sprint("L", i); partOf(l) == p {
			out = append(out, l)
		}
	}
	return out
}
