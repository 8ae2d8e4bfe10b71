package turns

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

func (r *rig) pause(trigger string, p Pause) {
	r.Helper()
	if err := r.engine.Pause(r.Context(), trigger, p); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) resume(trigger string) {
	r.Helper()
	if err := r.engine.Resume(r.Context(), trigger); err != nil {
		r.Fatal(err)
	}
}

func TestPause(t *testing.T) {
	t.Run("holds what comes, keeps what is queued, and goes on in order", func(t *testing.T) {
		act := newManual()
		r := setup(t, trigger("a", act))
		r.openTurns(ask("a", "0", "L"), ask("a", "1", "L"))
		c := act.next(t, "0")
		r.pause("a", Pause{Note: "lunch"})
		r.pause("a", Pause{Note: "still lunch"}) // safe to repeat
		var os []triggerd.Opening
		for i := 2; i < 600; i++ { // more than a batch
			os = append(os, ask("a", fmt.Sprint(i), "L"))
		}
		r.openTurns(os...)
		c.done()
		r.want("0", Done) // what runs goes on
		act.idle(t)
		r.state("a", "1", Queued)
		if i := r.state("a", "2", Held); i.Cause != causePaused {
			t.Errorf("cause %q", i.Cause)
		}
		if n := r.engine.Counts()["a"]; n != (Counts{Queued: 1, Held: 598}) {
			t.Errorf("counts %+v", n)
		}
		if p, ok := r.engine.Paused("a"); !ok || p.Note != "still lunch" {
			t.Errorf("pause %+v, %v", p, ok)
		}
		r.restart() // it survives
		act.idle(t)
		if p, ok := r.engine.Paused("a"); !ok || p.Note != "still lunch" {
			t.Errorf("after a restart: pause %+v, %v", p, ok)
		}
		r.resume("a")
		r.resume("a")
		if n := r.engine.Counts()["a"]; n.Held != 0 {
			t.Errorf("resume came back with %d held", n.Held)
		}
		for i := 1; i < 600; i++ {
			act.next(t, fmt.Sprint(i)).done()
		}
	})
	t.Run("skips what comes when the trigger says so", func(t *testing.T) {
		s := trigger("a", &auto{})
		s.SkipPaused = true
		r := setup(t, s)
		r.pause("a", Pause{})
		r.openTurns(ask("a", "1", ""))
		if i := r.want("1", Skipped); i.Cause != causePaused {
			t.Errorf("cause %q", i.Cause)
		}
		r.resume("a")
		r.openTurns(ask("a", "2", ""))
		r.want("2", Done)
	})
}

func TestPauseEnds(t *testing.T) {
	t.Run("by itself", func(t *testing.T) {
		r := setup(t, trigger("a", &auto{}))
		r.pause("a", Pause{})
		r.openTurns(ask("a", "1", ""))
		r.state("a", "1", Held)
		at := time.Now()
		r.pause("a", Pause{Until: &at})
		r.want("1", Done)
		r.until("the pause is gone", func() bool { _, ok := r.engine.Paused("a"); return !ok })
	})
	t.Run("while the daemon is down, and skips nothing then", func(t *testing.T) {
		s := trigger("a", &auto{})
		s.SkipPaused = true
		r := setup(t, s)
		at := time.Now()
		r.crash()
		r.open()
		r.pause("a", Pause{Until: &at}) // as the daemon before had stored it
		r.goOn()
		r.openTurns(ask("a", "1", ""))
		r.want("1", Done)
	})
	t.Run("while a turn is stored as held, which is queued all the same", func(t *testing.T) {
		act := &auto{}
		r := setup(t, trigger("a", act))
		r.pause("a", Pause{})
		req := ask("a", "1", "")
		o := r.engine.opening(&req)
		mark := r.engine.mark()
		defer r.engine.unmark(mark)
		if err := r.engine.prepare(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		r.resume("a") // between the decision and the board
		if err := r.engine.openWave(t.Context(), []*opening{o}); err != nil {
			t.Fatal(err)
		}
		if err := r.engine.admit(t.Context(), []*opening{o}); err != nil {
			t.Fatal(err)
		}
		r.want("1", Done)
	})
	t.Run("although the caller gives up", func(t *testing.T) {
		r := setup(t, trigger("a", &auto{}))
		r.pause("a", Pause{})
		r.openTurns(ask("a", "1", ""))
		if err := r.engine.endPause(t.Context(), "a", nil); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.engine.releaseHeld(gone, "a")
		r.want("1", Done)
	})
}

// A trigger that is gone: its turns are shown as held and why, lanes that it shares go on, and all comes back with it.
func TestTriggerGone(t *testing.T) {
	a, b := newManual(), newManual()
	sa, sb := trigger("a", a), trigger("b", b)
	r := setup(t, sa, sb)
	r.openTurns(ask("a", "run", "L"), ask("a", "wait", "L"), ask("b", "shared", "L"), ask("a", "backoff", "M"))
	var run *call
	for range 2 {
		if c := recv(t, a.calls, "an attempt"); c.Key.EventID == "run" {
			run = c
		} else {
			c.out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: "x", RetryAfter: time.Hour}
		}
	}
	r.until("the failure is stored", func() bool { return r.get(hashOf("a", "backoff")).State == Failed })
	r.engine.SetTriggers(map[string]*Spec{"b": sb})
	r.until("what waits is held", func() bool { return r.engine.Counts()["a"] == Counts{Running: 1, Held: 2} })
	r.openTurns(ask("a", "new", "L"))
	for _, id := range []string{"wait", "backoff", "new"} {
		if i := r.state("a", id, Held); i.Cause != causeGone {
			t.Errorf("%s: cause %q", id, i.Cause)
		}
	}
	run.done() // what runs goes on with what it started with
	r.want("run", Done)
	b.next(t, "shared").done()
	r.want("shared", Done)

	r.crash()
	delete(r.specs, "a")
	r.start()
	r.state("a", "wait", Held)
	a.idle(t)

	r.specs["a"] = sa
	r.engine.SetTriggers(r.specs)
	if err := r.engine.ReleaseHeld(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.next(t, "wait").done()
	a.next(t, "new").done()
	if i := r.state("a", "backoff", Failed); time.Until(i.NotBefore) < 50*time.Minute {
		t.Errorf("the backoff ends at %v", i.NotBefore)
	}
}

func TestOverlapSkip(t *testing.T) {
	act := newManual()
	s := trigger("a", act)
	s.Overlap = OverlapSkip
	r := setup(t, s)
	blocked := func(t *testing.T, id, by string) {
		t.Helper()
		if i := r.want(id, Skipped); i.Cause != "overlap: skip; blocked by c:a:"+by {
			t.Errorf("cause %q", i.Cause)
		}
	}
	t.Run("while one runs", func(t *testing.T) {
		r.openTurns(ask("a", "1", "a"))
		c := act.next(t, "1")
		r.openTurns(ask("a", "2", "a"))
		blocked(t, "2", "1")
		r.openTurns(ask("a", "1", "a"), ask("a", "2", "a")) // the same events again change nothing
		c.done()
		r.want("1", Done)
		r.openTurns(ask("a", "3", "a"))
		act.next(t, "3").done()
		r.want("3", Done)
	})
	t.Run("but not what waits for its lane", func(t *testing.T) {
		queues := func(id string) triggerd.Opening { o := ask("a", id, "a"); o.Queues = true; return o }
		r.openTurns(queues("b1"), queues("b2"), queues("b3"))
		c := act.next(t, "b1")
		r.openTurns(ask("a", "tick", "a"))
		blocked(t, "tick", "b1")
		c.done()
		r.want("b1", Done)
		for _, id := range []string{"b2", "b3"} {
			act.next(t, id).done()
			r.want(id, Done)
		}
	})
	t.Run("inside one call", func(t *testing.T) {
		r.openTurns(ask("a", "4", "a"), ask("a", "5", "a"), ask("a", "other", "b"), ask("a", "6", "a"))
		skipped := map[string]bool{}
		for range 2 {
			i := r.final()
			skipped[i.Key.EventID] = i.State == Skipped && i.Cause == "overlap: skip; blocked by c:a:4"
		}
		if !skipped["5"] || !skipped["6"] {
			t.Errorf("skipped %v", skipped)
		}
		for range 2 {
			recv(t, act.calls, "an attempt").done()
			r.final()
		}
	})
	act.idle(t)
}

func TestOverlapSkipAcrossCalls(t *testing.T) {
	act := newManual()
	s := trigger("a", act)
	s.Overlap = OverlapSkip
	r := setup(t, s)
	t.Run("at the same moment", func(t *testing.T) {
		const n = 8
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- r.engine.Open(t.Context(), []triggerd.Opening{ask("a", fmt.Sprint("same", i), "a")}) }()
		}
		for range n {
			if err := recv(t, errs, "the opening"); err != nil {
				t.Fatal(err)
			}
		}
		for range n - 1 {
			if i := r.final(); i.State != Skipped {
				t.Errorf("%s is %s", i.Key, i.State)
			}
		}
		recv(t, act.calls, "an attempt").done()
		r.final()
		act.idle(t)
	})
	t.Run("repeated after a restart, the event that ran is not in the way of the next", func(t *testing.T) {
		r.openTurns(ask("a", "7", "a"))
		act.next(t, "7").done()
		r.want("7", Done)
		r.restart()
		r.openTurns(ask("a", "7", "a"), ask("a", "8", "a"))
		act.next(t, "8").done()
	})
	t.Run("without a lane nothing is skipped", func(t *testing.T) {
		r.openTurns(ask("a", "9", ""), ask("a", "10", ""))
		recv(t, act.calls, "an attempt").done()
		recv(t, act.calls, "an attempt").done()
	})
}
