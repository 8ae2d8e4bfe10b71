package turns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// 50 lanes of 40 turns, a third of the first attempts fail: each lane runs one at a time, in order, and each turn ends once.
func TestOrderPerLane(t *testing.T) {
	const lanes, perLane = 50, 40
	var mu sync.Mutex
	busy, order := map[string]bool{}, map[string][]string{}
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		mu.Lock()
		if busy[a.Thread] {
			t.Errorf("two turns of lane %s at once", a.Thread)
		}
		busy[a.Thread] = true
		mu.Unlock()
		defer func() {
			mu.Lock()
			busy[a.Thread] = false
			mu.Unlock()
		}()
		if a.Number < 3 && strings.HasSuffix(a.Key.EventID, "7") { // twice, every tenth
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "now and then"}
		}
		mu.Lock()
		order[a.Thread] = append(order[a.Thread], a.Key.EventID)
		mu.Unlock()
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
	r := setup(t, trigger("a", act))
	want := map[string][]string{}
	var os []triggerd.Opening
	for i := range perLane {
		for l := range lanes {
			lane := fmt.Sprint("lane", l)
			id := fmt.Sprintf("%s-%d", lane, i)
			want[lane] = append(want[lane], id)
			os = append(os, ask("a", id, lane))
			if len(os) == 250 {
				r.openTurns(os...)
				os = nil
			}
		}
	}
	for range lanes * perLane {
		if i := r.final(); i.State != Done {
			t.Fatalf("%s is %s: %s", i.Key, i.State, i.Cause)
		}
	}
	for lane, ids := range want {
		if got := order[lane]; strings.Join(got, " ") != strings.Join(ids, " ") {
			t.Errorf("%s ran %v", lane, got)
		}
	}
	if got := r.tally(); got[Done] != lanes*perLane || len(got) != 1 {
		t.Errorf("turns by state: %v", got)
	}
}

func TestLimits(t *testing.T) {
	var mu sync.Mutex
	running, most := map[string]int{}, map[string]int{}
	full := make(chan struct{})
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		mu.Lock()
		for _, k := range []string{a.Trigger, "all"} {
			running[k]++
			most[k] = max(most[k], running[k])
		}
		if most["all"] == 3 && most["a"] == 2 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full // nobody ends before the limits are reached
		mu.Lock()
		defer mu.Unlock()
		running[a.Trigger]--
		running["all"]--
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
	sa := trigger("a", act)
	sa.Limit = 2
	r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{"a": sa, "b": trigger("b", act)}, change: func(o *Options) { o.Concurrency = 3 }}
	r.start()
	for i := range 30 {
		r.openTurns(ask("a", fmt.Sprint(i), ""), ask("b", fmt.Sprint(i), ""))
	}
	for range 60 {
		r.final()
	}
	if most["a"] != 2 || most["all"] != 3 {
		t.Errorf("at most %v ran at once, the limits are 2 for a and 3 for all", most)
	}
}

// P7: bounded attempts, then dead with its cause; the neighbours are not held up; a retry after the fix gives a done turn that names the first.
func TestPoison(t *testing.T) {
	var broken sync.Map
	broken.Store("6", true)
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		if _, bad := broken.Load(a.Key.EventID); bad {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "cannot swallow this"}
		}
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
	s := trigger("a", act)
	r := setup(t, s)
	for i := range 10 {
		r.openTurns(ask("a", fmt.Sprint(i), fmt.Sprint("lane", i%3)))
	}
	var dead Info
	for range 10 {
		if i := r.final(); i.State == Dead {
			dead = i
		} else if i.State != Done || i.Attempt != 1 {
			t.Errorf("%s is %s after %d attempts", i.Key, i.State, i.Attempt)
		}
	}
	if dead.Key.EventID != "6" || dead.Attempt != 4 || !strings.Contains(dead.Cause, "cannot swallow this (attempt 4 of 4") {
		t.Fatalf("the poison is %s after %d attempts: %s", dead.Key, dead.Attempt, dead.Cause)
	}
	if got := r.tally(); got[Done] != 9 || got[Dead] != 1 {
		t.Errorf("turns by state: %v", got)
	}
	d, err := r.engine.Show(t.Context(), dead.Hash)
	if err != nil || string(d.Event.Payload) != "payload of 6" {
		t.Errorf("the original event: %q, %v", d.Event.Payload, err)
	}
	broken.Delete("6")
	key, err := r.engine.Retry(t.Context(), dead.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if i := r.want("6", Done); i.Key != key || i.ReplayOf != "c:a:6" || key.Replay != 1 {
		t.Errorf("the replay is %s of %s, want %s", i.Key, i.ReplayOf, key)
	}
	if i := r.state("a", "6", Dead); i.Hash != dead.Hash {
		t.Error("the first turn changed")
	}
}

// A backoff holds its own lane only, and Retry-After is its floor.
func TestBackoff(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"), ask("a", "3", "M"))
	calls := map[string]*call{}
	for range 2 {
		c := recv(t, act.calls, "an attempt")
		calls[c.Key.EventID] = c
	}
	calls["1"].out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: "busy", RetryAfter: time.Hour}
	calls["3"].done()
	r.want("3", Done)
	r.until("the failure is stored", func() bool { return r.get(hashOf("a", "1")).State == Failed })
	i := r.state("a", "1", Failed)
	if wait := time.Until(i.NotBefore); wait < 50*time.Minute || wait > time.Hour || i.Cause != "busy" {
		t.Errorf("next attempt in %v because %q", wait, i.Cause)
	}
	act.idle(t)
	r.state("a", "2", Queued)
}

func TestOutcomes(t *testing.T) {
	five := 5
	for name, c := range map[string]struct {
		out   triggerd.Outcome
		state State
		cause string
	}{
		"done":   {triggerd.Outcome{Verb: triggerd.Done, Cause: "ignored", Result: triggerd.Result{Status: 204}}, Done, ""},
		"dead":   {triggerd.Outcome{Verb: triggerd.Dead, Cause: "never", Result: triggerd.Result{ExitCode: &five}}, Dead, "never"},
		"parked": {triggerd.Outcome{Verb: triggerd.Parked, Cause: "who knows", Result: triggerd.Result{Output: []byte("half")}}, Parked, "who knows"},
	} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			r := setup(t, trigger("a", act))
			r.openTurns(ask("a", "1", "L"), ask("a", "2", "L"))
			act.next(t, "1").out <- c.out
			if i := r.want("1", c.state); i.Cause != c.cause || i.Attempt != 1 {
				t.Errorf("attempt %d, cause %q", i.Attempt, i.Cause)
			}
			act.next(t, "2").done() // none of these holds the lane
			r.want("2", Done)
			d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
			if err != nil {
				t.Fatal(err)
			}
			if string(d.Output) != string(c.out.Result.Output) || d.Result.Status != c.out.Result.Status || d.Result.Bytes != int64(len(d.Output)) {
				t.Errorf("result %+v, output %q", d.Result, d.Output)
			}
		})
	}
}

// What an action does wrong costs its turn, not the daemon.
func TestBadActions(t *testing.T) {
	secret := func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), "hunter22", "[redacted]")) }
	for name, c := range map[string]struct {
		f     func(*Attempt) triggerd.Outcome
		cause string
	}{
		"panics":           {func(*Attempt) triggerd.Outcome { panic("hunter22 is nil") }, "the action panicked: [redacted] is nil"},
		"gives no verdict": {func(*Attempt) triggerd.Outcome { return triggerd.Outcome{Cause: "um"} }, "the action gave no verdict um (attempt 4 of 4"},
		"talks without end": {func(*Attempt) triggerd.Outcome {
			return triggerd.Outcome{Verb: triggerd.Dead, Cause: strings.Repeat("é", 1<<20)}
		}, "é..."},
		"prints its secrets": {func(*Attempt) triggerd.Outcome { return triggerd.Outcome{Verb: triggerd.Dead, Cause: "I am hunter22"} }, "I am [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{"a": trigger("a", &auto{f: c.f})}, change: func(o *Options) { o.Redact = secret }}
			r.start()
			r.openTurns(ask("a", "1", ""))
			if i := r.want("1", Dead); !strings.Contains(i.Cause, c.cause) || len(i.Cause) > maxCause+10 {
				t.Errorf("cause %q", i.Cause)
			}
		})
	}
}

// The output is redacted, the event it may be a part of is not.
func TestOutputIsRedactedAndTheEventKept(t *testing.T) {
	act := &auto{f: func(a *Attempt) triggerd.Outcome {
		return triggerd.Outcome{Verb: triggerd.Done, Result: triggerd.Result{Output: a.Event.Payload}}
	}}
	r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{"a": trigger("a", act)}, change: func(o *Options) {
		o.Redact = func(b []byte) []byte { // in place, as it is allowed to
			for i := range b {
				b[i] = '*'
			}
			return b
		}
	}}
	r.start()
	r.openTurns(ask("a", "1", ""))
	r.want("1", Done)
	d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
	if err != nil || string(d.Event.Payload) != "payload of 1" || string(d.Output) != "************" {
		t.Errorf("event %q, output %q, %v", d.Event.Payload, d.Output, err)
	}
}

func TestTimeout(t *testing.T) {
	act := newManual()
	s := trigger("a", act)
	s.Timeout, s.Retry.Attempts = time.Millisecond, 2
	r := setup(t, s)
	r.openTurns(ask("a", "1", ""))
	for n := 1; n <= 2; n++ {
		c := act.next(t, "1")
		<-c.ctx.Done()
		if !errors.Is(context.Cause(c.ctx), ErrTimeout) {
			t.Errorf("attempt %d ended because of %v", n, context.Cause(c.ctx))
		}
	}
	if i := r.want("1", Dead); i.Attempt != 2 || !strings.Contains(i.Cause, ErrTimeout.Error()) {
		t.Errorf("attempt %d, cause %q", i.Attempt, i.Cause)
	}
}

// P5: a long turn is one attempt, shown as running, while others go by.
func TestLongTurn(t *testing.T) {
	long, short := newManual(), &auto{}
	r := setup(t, trigger("long", long), trigger("short", short))
	r.openTurns(ask("long", "1", "L"))
	c := long.next(t, "1")
	for i := range 200 {
		r.openTurns(ask("short", fmt.Sprint(i), ""))
		r.want(fmt.Sprint(i), Done)
	}
	if i := r.state("long", "1", Running); i.Attempt != 1 {
		t.Errorf("attempt %d", i.Attempt)
	}
	long.idle(t)
	c.done()
	r.want("1", Done)
}

// The daemon does not need the ledger's help to start http and publish actions, others record their start first.
func TestRunningEntry(t *testing.T) {
	park := func(s *Spec) { s.OnCrash = OnCrashPark }
	for name, c := range map[string]struct {
		needs  bool
		change func(*Spec)
		want   string
	}{
		"short action":            {false, func(*Spec) {}, "queued"},
		"short action that parks": {false, park, "queued running"},
		"exec":                    {true, func(*Spec) {}, "queued running"},
	} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			act.needs = c.needs
			s := trigger("a", act)
			c.change(s)
			r := setup(t, s)
			r.openTurns(ask("a", "1", ""))
			attempt := act.next(t, "1")
			defer attempt.done()
			d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
			if err != nil {
				t.Fatal(err)
			}
			var states []string
			for _, h := range d.History {
				states = append(states, string(h.State))
			}
			if got := strings.Join(states, " "); got != c.want || d.State != Running {
				t.Errorf("history %q, shown as %s; want %q", got, d.State, c.want)
			}
		})
	}
}

// A reader of the end is told after it is durable, and again until it has understood.
func TestOnFinalIsRetried(t *testing.T) {
	var failures int
	told := make(chan Info, 10)
	r := &rig{T: t, store: t.TempDir(), specs: map[string]*Spec{"a": trigger("a", &auto{})}}
	r.change = func(o *Options) {
		o.OnFinal = func(_ context.Context, i Info) error {
			if last, err := r.engine.ledger.last(t.Context(), i.Hash); err != nil || last.State != Done {
				t.Errorf("told before it is stored: %v", err)
			}
			if failures++; failures < 3 {
				return errors.New("not yet")
			}
			told <- i
			return nil
		}
	}
	r.start()
	r.openTurns(ask("a", "1", ""))
	if i := recv(t, told, "the end to be told"); i.State != Done || failures != 3 {
		t.Errorf("%s after %d tries", i.State, failures)
	}
}

// A repeat waits for the end of the attempt that a crash cut short, however long that cannot be said, and a stop ends the waiting.
func TestWaitGoneIsRetried(t *testing.T) {
	act := newManual()
	act.needs = true
	s := trigger("a", act)
	r := setup(t, s)
	r.openTurns(ask("a", "1", ""))
	act.next(t, "1")
	asked := make(chan struct{}, 1000)
	stuck := func(o *Options) {
		o.WaitGone = func(context.Context, Process) error { asked <- struct{}{}; return errors.New("cannot say") }
	}
	act = newManual()
	s.Action = act
	r.change = stuck
	r.restart()
	recv(t, asked, "the first question")
	recv(t, asked, "the second question")
	act.idle(t)
	r.stop()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	r.engine.Drain(now)
	r.bus.Close()
	r.change = nil
	r.start()
	if c := act.next(t, "1"); c.Number != 2 {
		t.Errorf("attempt %d", c.Number)
	} else {
		c.done()
	}
}

// Reading a turn while it ends gives the one or the other, never an error.
func TestShowWhileItEnds(t *testing.T) {
	r := setup(t, trigger("a", &auto{f: func(a *Attempt) triggerd.Outcome {
		return triggerd.Outcome{Verb: triggerd.Done, Result: triggerd.Result{Output: a.Event.Payload}}
	}}))
	for i := range 200 {
		id := fmt.Sprint(i)
		r.openTurns(ask("a", id, ""))
		for {
			d, err := r.engine.Show(t.Context(), hashOf("a", id))
			if err != nil {
				t.Fatal(err)
			}
			if string(d.Event.Payload) != "payload of "+id {
				t.Fatalf("%s shows %q", id, d.Event.Payload)
			}
			if d.State == Done {
				if string(d.Output) != "payload of "+id || len(d.History) != 2 {
					t.Errorf("output %q, history %+v", d.Output, d.History)
				}
				break
			}
		}
	}
}

func BenchmarkEngine(b *testing.B) {
	for _, lanes := range []int{0, 64} {
		b.Run(fmt.Sprintf("%d lanes", lanes), func(b *testing.B) {
			store, err := bus.Open(b.Context(), bus.Options{
				Prefix: "triggerd", Embedded: &bus.EmbeddedOptions{Store: b.TempDir(), Sync: bus.SyncInterval, Listen: "off"}, Log: zerolog.Nop(),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			ended := make(chan struct{}, 1<<20)
			e := New(Options{Bus: store, Epoch: 1, Log: zerolog.Nop(), OnFinal: func(context.Context, Info) error { ended <- struct{}{}; return nil }})
			e.SetTriggers(map[string]*Spec{"a": trigger("a", &auto{})})
			ctx, stop := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = e.Run(ctx) })
			payload := make([]byte, 1024)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 256 {
				os := make([]triggerd.Opening, min(256, b.N-n))
				for i := range os {
					lane := ""
					if lanes > 0 {
						lane = fmt.Sprint(i % lanes)
					}
					os[i] = ask("a", fmt.Sprint(n+i), lane)
					os[i].Event.Payload = payload
				}
				if err := e.Open(b.Context(), os); err != nil {
					b.Fatal(err)
				}
			}
			for range b.N {
				<-ended
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
			stop()
			wg.Wait()
			e.Drain(b.Context())
		})
	}
}
