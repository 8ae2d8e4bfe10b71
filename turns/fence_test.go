package turns

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Another writer on a turn means that somebody else owns the turns: the engine stops everything.
func TestFenced(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"), ask("a", "3", ""))
	calls := map[string]*call{}
	for range 2 {
		c := recv(t, act.calls, "an attempt")
		calls[c.Key.EventID] = c
	}
	last, err := r.engine.ledger.last(t.Context(), hashOf("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	other := *last
	other.State, other.Epoch, other.Claimed, other.OpenSeq = Running, 99, true, last.Seq
	rawEntry(t, r.bus, last.Subject, last.Seq, &other, nil)
	calls["1"].done()
	wantErr(t, recv(t, r.ran, "Run to return"), triggerd.ErrFenced)
	r.ran <- nil // for the cleanup
	<-calls["3"].ctx.Done()
	if why := context.Cause(calls["3"].ctx); !errors.Is(why, triggerd.ErrFenced) {
		t.Errorf("the other attempt ended because of %v", why)
	}
	wantErr(t, r.engine.Open(t.Context(), []triggerd.Opening{ask("a", "4", "")}), triggerd.ErrFenced)
	wantErr(t, r.engine.Cancel(t.Context(), hashOf("a", "2")), triggerd.ErrFenced)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	r.engine.Drain(now)
	act.idle(t)
	for id, want := range map[string]State{"1": Running, "2": Queued, "3": Queued} { // nothing was written over
		last, err := r.engine.ledger.last(t.Context(), hashOf("a", id))
		if err != nil || last.State != want {
			t.Errorf("%s is %v, %v", id, last, err)
		}
	}
}

// An owner that was overtaken must not write its checkpoint over its successor's, and learns of it by that.
func TestCheckpointIsFenced(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	first := r.life
	r.on(r.bus)
	r.goOn() // a second owner on the same store, as a lease can give
	r.openTurns(ask("a", "1", ""))
	r.want("1", Done)
	if err := first.engine.Open(t.Context(), []triggerd.Opening{ask("gone", "2", "")}); err != nil { // it does not know yet
		t.Fatal(err)
	}
	wantErr(t, recv(t, first.ran, "the first owner's Run to return"), triggerd.ErrFenced)
	first.ran <- nil
	r.engine.checkpoints.mu.Lock() // its housekeeping stores one now and then
	cp, err := r.engine.loadCheckpoint(t.Context())
	r.engine.checkpoints.mu.Unlock()
	if err != nil || cp.Epoch != 2 {
		t.Errorf("checkpoint %+v, %v", cp, err)
	}
	// And an owner of the past does not even start.
	late := New(Options{Bus: r.bus, Epoch: 1, Log: zerolog.Nop()})
	_, err = late.Recover(t.Context())
	wantErr(t, err, triggerd.ErrFenced)
	late.Drain(t.Context())
}

// natsServer runs a server that is not ours.
func natsServer(t *testing.T) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

func connect(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Prefix: "triggerd", External: &bus.ExternalOptions{URLs: []string{url}}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// On an external NATS a former owner may still be alive: a takeover claims each unfinished turn, so that nothing it writes counts any more (P4's fence).
func TestTakeoverOfALivingOwner(t *testing.T) {
	url := natsServer(t)
	connect := func() *bus.Bus { return connect(t, url) }
	act := newManual()
	r := &rig{T: t, specs: map[string]*Spec{"a": trigger("a", act)}}
	r.on(connect())
	r.goOn()
	r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"), ask("a", "3", "M"))
	var frozen, late *call
	for range 2 {
		if c := recv(t, act.calls, "an attempt"); c.Key.EventID == "1" {
			frozen = c
		} else {
			late = c
		}
	}
	d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
	if err != nil || len(d.History) != 2 || d.History[1].State != Running {
		t.Fatalf("an attempt on an external NATS is recorded before it starts: %+v, %v", d.History, err)
	}
	old := r.life
	act = newManual()
	r.specs["a"].Action = act
	r.on(connect())
	late.done() // the old owner still writes while the new one takes over
	if i := recv(t, old.finals, "the old owner's last end"); i.Key.EventID != "3" || i.State != Done {
		t.Errorf("%s is %s", i.Key, i.State)
	}
	r.goOn()
	c := act.next(t, "1")
	frozen.done() // it thaws: its result comes too late
	wantErr(t, recv(t, old.ran, "the old owner's Run to return"), triggerd.ErrFenced)
	old.ran <- nil
	if c.Number != 2 {
		t.Errorf("attempt %d", c.Number)
	}
	r.state("a", "1", Running)
	c.done()
	act.next(t, "2").done()
	for _, id := range []string{"1", "2"} {
		for {
			if i := r.final(); i.Key.EventID == id { // 3 may be told again
				break
			}
		}
	}
	if i := r.state("a", "1", Done); i.Attempt != 2 {
		t.Errorf("attempt %d", i.Attempt)
	}
}

// What the old owner writes between the new one's reading and its claim counts.
func TestClaimTakesWhatCameBetween(t *testing.T) {
	r := setup(t, trigger("a", newManual()))
	r.pause("a", Pause{})
	r.openTurns(ask("a", "1", ""), ask("a", "2", ""))
	next := New(Options{Bus: r.bus, Epoch: 9, Log: zerolog.Nop()})
	defer next.Drain(t.Context())
	for id, state := range map[string]State{"1": Failed, "2": Done} {
		read, err := next.ledger.last(t.Context(), hashOf("a", id))
		if err != nil {
			t.Fatal(err)
		}
		between := *read
		between.State, between.Attempt = state, 1
		rawEntry(t, r.bus, read.Subject, read.Seq, &between, nil)
		got, err := next.claim(t.Context(), read)
		if err != nil || got.State != state || got.Attempt != 1 || got.Claimed != (state == Failed) {
			t.Errorf("claimed %s: %+v, %v", id, got, err)
		}
	}
	newer := Entry{State: Queued, Key: triggerd.TurnKey{Connection: "c", Trigger: "a", EventID: "1"}, Epoch: 10}
	last, err := next.ledger.last(t.Context(), hashOf("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	newer.OpenSeq = last.OpenSeq
	rawEntry(t, r.bus, last.Subject, last.Seq, &newer, nil)
	_, err = next.claim(t.Context(), last)
	wantErr(t, err, triggerd.ErrFenced)
}

// A write whose answer was lost is our own, not somebody else's.
func TestLostAnswer(t *testing.T) {
	r := setup(t, trigger("a", newManual()))
	r.pause("a", Pause{})
	r.openTurns(ask("a", "1", ""))
	l := r.engine.ledger
	first, err := l.last(t.Context(), hashOf("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	held := *first
	held.OpenSeq = first.Seq
	s, err := l.send(first.Subject, first.Seq, &held)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := l.stored(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	s.pending = r.bus.PublishAsync(s.msg) // as after a time-out
	if again, err := l.stored(t.Context(), s); err != nil || again != seq {
		t.Errorf("sequence %d, %v; want %d", again, err, seq)
	}
}

// The store goes away in the middle of everything and comes back: nothing is lost, and nobody is fenced.
func TestStoreOutage(t *testing.T) {
	opts := &server.Options{JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}
	srv := server.New(opts)
	go srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	port := srv.Addr().(*net.TCPAddr).Port
	b, err := bus.Open(t.Context(), bus.Options{Prefix: "triggerd", External: &bus.ExternalOptions{URLs: []string{srv.ClientURL()}}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	t.Cleanup(b.Close)
	act := newManual()
	r := &rig{T: t, specs: map[string]*Spec{"a": trigger("a", act)}}
	r.on(b)
	r.goOn()
	r.openTurns(ask("a", "1", ""))
	c := act.next(t, "1")

	srv.Shutdown()
	srv.WaitForShutdown()
	c.done() // its end cannot be recorded now
	opened := make(chan error, 2)
	go func() {
		opened <- r.engine.Open(t.Context(), []triggerd.Opening{ask("a", "2", "L"), ask("a", "3", "L")})
	}()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantErr(t, r.engine.Open(short, []triggerd.Opening{ask("a", "given up", "")}), triggerd.ErrUnavailable)

	opts = opts.Clone()
	opts.Port = port
	srv = server.New(opts)
	go srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not come back")
	}
	if err := recv(t, opened, "the opening"); err != nil {
		t.Fatal(err)
	}
	act.next(t, "2").done()
	act.next(t, "3").done()
	got := map[string]State{}
	for range 3 {
		i := r.final()
		got[i.Key.EventID] = i.State
	}
	for _, id := range []string{"1", "2", "3"} {
		if got[id] != Done {
			t.Errorf("%s is %q", id, got[id])
		}
	}
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	if r.engine.fenced != nil {
		t.Error(r.engine.fenced)
	}
}
