package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// P3 for every state at once: a daemon dies with turns queued, in backoff, running, held, parked and finished; the next one goes on with each.
func TestCrashInEveryState(t *testing.T) {
	act := newManual()
	act.needs = true
	s := trigger("a", act)
	r := setup(t, s, trigger("paused", act))
	r.pause("paused", Pause{})
	r.openTurns(ask("a", "done", "1"), ask("a", "backoff", "2"), ask("a", "parked", "3"), ask("paused", "held", "5"))
	for range 3 {
		switch c := recv(t, act.calls, "an attempt"); c.Key.EventID {
		case "done":
			c.done()
		case "backoff":
			c.out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: "x", RetryAfter: time.Hour}
		case "parked":
			c.out <- triggerd.Outcome{Verb: triggerd.Parked, Cause: "?"}
		}
	}
	r.until("all is stored", func() bool {
		n := r.tally()
		return n[Done] == 1 && n[Failed] == 1 && n[Parked] == 1 && n[Held] == 1
	})
	r.openTurns(ask("a", "running", "4"), ask("a", "queued", "4"), ask("a", "last", "4"))
	act.next(t, "running")
	backoff := r.state("a", "backoff", Failed)

	var gone []Process
	var mu sync.Mutex
	r.change = func(o *Options) {
		o.WaitGone = func(_ context.Context, p Process) error {
			mu.Lock()
			defer mu.Unlock()
			gone = append(gone, p)
			return nil
		}
	}
	old := act
	act = newManual()
	act.needs = true
	s.Action, r.specs["paused"].Action = act, act
	r.restart()
	if r.recovered.Unfinished != 6 || r.recovered.CutShort != 1 {
		t.Errorf("recovered %+v", r.recovered)
	}
	c := act.next(t, "running")
	mu.Lock()
	if !slices.Equal(gone, []Process{{Host: "h", Group: 4711, Started: "1"}}) {
		t.Errorf("before the repeat it waited for %v", gone)
	}
	mu.Unlock()
	if c.Number != 2 || c.IdempotencyKey() != "c:a:running" || string(c.Event.Payload) != "payload of running" {
		t.Errorf("the repeat is attempt %d, key %s", c.Number, c.IdempotencyKey())
	}
	act.idle(t) // what stands behind it in its lane waits
	c.done()
	act.next(t, "queued").done()
	act.next(t, "last").done()
	if i := r.state("a", "backoff", Failed); !i.NotBefore.Equal(backoff.NotBefore) || i.Attempt != 1 {
		t.Errorf("backoff until %v after %d attempts, want %v after 1", i.NotBefore, i.Attempt, backoff.NotBefore)
	}
	r.state("a", "parked", Parked)
	r.state("paused", "held", Held)
	r.resume("paused")
	act.next(t, "held").done()
	r.until("all that can end has", func() bool { return r.tally()[Done] == 5 })
	old.idle(t)
}

func TestCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Spec)
		gone   bool // the trigger is not configured after the crash
		want   State
		cause  string
	}{
		"is retried": {func(*Spec) {}, false, Running, ""},
		"parks":      {func(s *Spec) { s.OnCrash = OnCrashPark }, false, Parked, "the daemon died during the attempt: outcome unknown"},
		"was the last attempt": {func(s *Spec) { s.Retry.Attempts = 1 }, false, Dead,
			"the daemon died during attempt 1 of 1: no attempt left"},
		"waits for its trigger":              {func(*Spec) {}, true, Held, causeGone},
		"parks although its trigger is gone": {func(s *Spec) { s.OnCrash = OnCrashPark }, true, Parked, "the daemon died during the attempt: outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			act.needs = true
			s := trigger("a", act)
			c.change(s)
			r := setup(t, s)
			r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"))
			act.next(t, "1")
			waited := make(chan Process, 10)
			r.change = func(o *Options) {
				o.WaitGone = func(_ context.Context, p Process) error { waited <- p; return nil }
			}
			act = newManual()
			s.Action = act
			if c.gone {
				delete(r.specs, "a")
			}
			r.restart()
			if r.recovered.CutShort != 1 {
				t.Errorf("recovered %+v", r.recovered)
			}
			r.until("it is where it belongs", func() bool { return r.get(hashOf("a", "1")).State == c.want })
			if i := r.get(hashOf("a", "1")); i.Cause != c.cause {
				t.Errorf("cause %q", i.Cause)
			}
			if c.want == Held {
				r.specs["a"] = s
				r.engine.SetTriggers(r.specs)
			}
			if c.want == Running || c.want == Held {
				if a := act.next(t, "1"); a.Number != 2 {
					t.Errorf("attempt %d", a.Number)
				} else {
					a.done()
				}
			} else if i := r.want("1", c.want); i.Cause != c.cause { // told, too
				t.Errorf("told %q", i.Cause)
			}
			if p := recv(t, waited, "the earlier process to be waited for"); p.Group != 4711 {
				t.Errorf("waited for %+v", p)
			}
			if !c.gone || c.want == Held {
				act.next(t, "2").done()
			}
		})
	}
}

// An action that kills the daemon each time is given up after its attempts.
func TestCrashLoopEnds(t *testing.T) {
	act := newManual()
	act.needs = true
	s := trigger("a", act)
	s.Retry.Attempts = 3
	r := setup(t, s)
	r.openTurns(ask("a", "killer", ""))
	for n := 1; n <= 3; n++ {
		if c := act.next(t, "killer"); c.Number != n {
			t.Fatalf("attempt %d, want %d", c.Number, n)
		}
		act = newManual()
		act.needs = true
		s.Action = act
		r.restart()
	}
	if i := r.want("killer", Dead); i.Attempt != 3 {
		t.Errorf("dead after %d attempts", i.Attempt)
	}
	act.idle(t)
}

// P17: what a stop cuts short does not count as an attempt and is queued again; what has a verdict keeps it.
func TestDrain(t *testing.T) {
	stubborn := func(v triggerd.Verb) Action {
		return actionFunc(func(ctx context.Context, _ *Attempt) triggerd.Outcome {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrShutdown) {
				t.Errorf("ended because of %v", context.Cause(ctx))
			}
			return triggerd.Outcome{Verb: v, Cause: "said " + string(v)}
		})
	}
	specs := []*Spec{trigger("retry", stubborn(triggerd.Retry)), trigger("dead", stubborn(triggerd.Dead)), trigger("done", stubborn(triggerd.Done))}
	park := trigger("park", stubborn(triggerd.Retry))
	park.OnCrash = OnCrashPark
	r := setup(t, append(specs, park)...)
	for _, k := range []string{"retry", "dead", "done", "park"} {
		r.openTurns(ask(k, "1", k), ask(k, "2", k))
	}
	r.until("all run", func() bool { return r.tally()[Running] == 4 })
	r.stop()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	r.engine.Drain(now)
	if i := r.state("retry", "1", Queued); i.Attempt != 0 {
		t.Errorf("the attempt was counted: %d", i.Attempt)
	}
	r.state("dead", "1", Dead)
	r.state("done", "1", Done)
	r.state("park", "1", Parked)
	for _, k := range []string{"retry", "dead", "done", "park"} {
		r.state(k, "2", Queued) // not started any more
	}
	wantErr(t, r.engine.Cancel(t.Context(), hashOf("retry", "1")), triggerd.ErrUnavailable)
	r.bus.Close()

	act := newManual()
	for _, s := range r.specs {
		s.Action = act
	}
	r.start()
	if r.recovered.CutShort != 0 || r.recovered.Finals != 0 || r.recovered.Unfinished != 6 {
		t.Errorf("after a clean stop: recovered %+v", r.recovered)
	}
	for range 5 {
		if c := recv(t, act.calls, "an attempt"); c.Number != 1 {
			t.Errorf("%s starts with attempt %d", c.Key, c.Number)
		} else {
			c.done()
		}
	}
}

// A drain within its time lets running turns end.
func TestDrainWaits(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"))
	c := act.next(t, "1")
	drained := make(chan struct{})
	go func() {
		r.engine.Drain(context.Background())
		close(drained)
	}()
	r.until("it is draining", func() bool { r.engine.mu.Lock(); defer r.engine.mu.Unlock(); return r.engine.stopping })
	c.done()
	recv(t, drained, "the drain")
	r.state("a", "1", Done)
	r.state("a", "2", Queued)
}

// An end that was stored and not told is told by the next start; what was told is not told again.
func TestFinalsAreToldAfterACrash(t *testing.T) {
	var told sync.Map
	r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{"a": trigger("a", &auto{})}}
	park := trigger("p", &auto{f: func(*Attempt) triggerd.Outcome { return triggerd.Outcome{Verb: triggerd.Parked, Cause: "?"} }})
	skip := trigger("s", &auto{})
	skip.SkipPaused = true
	r.specs["p"], r.specs["s"] = park, skip
	blocked := make(chan string, 10)
	r.change = func(o *Options) {
		o.OnFinal = func(ctx context.Context, i Info) error {
			if strings.HasPrefix(i.Key.EventID, "untold") {
				blocked <- i.Key.EventID
				<-ctx.Done() // until the daemon is dead
				return ctx.Err()
			}
			told.Store(i.Key.String(), i.State)
			return nil
		}
	}
	r.start()
	r.pause("s", Pause{})
	for i := range 20 {
		r.openTurns(ask("a", fmt.Sprint(i), ""))
	}
	r.until("all is told and settled", func() bool { return r.engine.checkpointNow().Told > 20 && r.engine.Counts()["a"] == Counts{} })
	r.openTurns(ask("a", "untold done", ""), ask("p", "untold parked", ""))
	go func() { _ = r.engine.Open(t.Context(), []triggerd.Opening{ask("s", "untold skipped", "")}) }()
	for range 3 {
		recv(t, blocked, "an end to be told")
	}
	r.openTurns(ask("a", "after", "")) // later ends move the checkpoint no further than the untold ones
	r.until("the others are told", func() bool { _, ok := told.Load("c:a:after"); return ok })
	if err := r.engine.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.change = nil
	r.start()
	got := map[string]State{}
	for range r.recovered.Finals {
		i := r.final()
		got[i.Key.EventID] = i.State
	}
	for id, want := range map[string]State{"untold done": Done, "untold parked": Parked, "untold skipped": Skipped} {
		if got[id] != want {
			t.Errorf("%s was told as %q", id, got[id])
		}
	}
	if _, ok := got["0"]; ok || len(got) > 4 {
		t.Errorf("told again: %v", got)
	}
}

// rawEntry stores an entry as another writer would. It expects last as the newest one on the turn's subject.
func rawEntry(t *testing.T, b *bus.Bus, subject string, last uint64, en *Entry, headers nats.Header) uint64 {
	t.Helper()
	en.Writer = "somebody:1"
	m, err := en.message(subject)
	if err != nil {
		t.Fatal(err)
	}
	bus.Expect(m, subject, last)
	for k, v := range headers {
		m.Header[k] = v
	}
	seq, err := b.Publish(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// An entry that nobody can read costs nobody else anything.
func TestUnreadableEntries(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	r.pause("a", Pause{})
	r.openTurns(ask("a", "fine", ""), ask("a", "blob lost", "L"), ask("a", "behind", "L"))
	m := nats.NewMsg(r.bus.Names.Turn(DefaultPool, "1", hashOf("a", "junk")))
	m.Header.Set(headerTurn, "{")
	if _, err := r.bus.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	last, err := r.engine.ledger.last(t.Context(), hashOf("a", "blob lost"))
	if err != nil {
		t.Fatal(err)
	}
	last.OpenSeq, last.Parts[partPayload] = 0, part{Blob: "nowhere"}
	last.body[partPayload] = nil
	rawEntry(t, r.bus, last.Subject, last.Seq, last, nats.Header{bus.HeaderRollup: {bus.RollupSubject}})
	r.restart()
	r.resume("a")
	got := map[string]Info{}
	for range 3 {
		i := r.final()
		got[i.Key.EventID] = i
	}
	if i := got["blob lost"]; i.State != Dead || !strings.Contains(i.Cause, "cannot be read") {
		t.Errorf("the one without its payload is %s (%s)", i.State, i.Cause)
	}
	if got["fine"].State != Done || got["behind"].State != Done {
		t.Errorf("the others: %v", got)
	}
	r.tally()
}
