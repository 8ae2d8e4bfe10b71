package turns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

func (r *rig) cancel(trigger, id string) {
	r.Helper()
	if err := r.engine.Cancel(r.Context(), hashOf(trigger, id)); err != nil {
		r.Fatalf("cancel %s: %v", id, err)
	}
	if i := r.state(trigger, id, Cancelled); i.Cause != ErrCancelled.Error() || i.Finished.IsZero() {
		r.Errorf("%s: cause %q, finished %v", id, i.Cause, i.Finished)
	}
}

func TestCancel(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	t.Run("running: the attempt is stopped first", func(t *testing.T) {
		r.openTurns(ask("a", "run", "L"), ask("a", "behind", "L"))
		c := act.next(t, "run")
		r.cancel("a", "run")
		if !errors.Is(context.Cause(c.ctx), ErrCancelled) {
			t.Errorf("its context ended because of %v", context.Cause(c.ctx))
		}
		act.next(t, "behind").done()
	})
	t.Run("queued behind another", func(t *testing.T) {
		r.openTurns(ask("a", "head", "L"), ask("a", "middle", "L"), ask("a", "last", "L"))
		c := act.next(t, "head")
		r.cancel("a", "middle")
		c.done()
		act.next(t, "last").done()
	})
	t.Run("in backoff", func(t *testing.T) {
		r.openTurns(ask("a", "failed", "L"), ask("a", "next", "L"))
		act.next(t, "failed").out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: "x", RetryAfter: time.Hour}
		r.until("the failure is stored", func() bool { return r.get(hashOf("a", "failed")).State == Failed })
		r.cancel("a", "failed")
		act.next(t, "next").done()
	})
	t.Run("parked", func(t *testing.T) {
		r.openTurns(ask("a", "parked", ""))
		act.next(t, "parked").out <- triggerd.Outcome{Verb: triggerd.Parked, Cause: "?"}
		r.until("it is parked", func() bool { return r.get(hashOf("a", "parked")).State == Parked })
		r.cancel("a", "parked")
	})
	t.Run("held", func(t *testing.T) {
		r.openTurns(ask("gone", "held", ""))
		r.state("gone", "held", Held)
		r.cancel("gone", "held")
	})
	t.Run("done wins over a cancel that comes too late", func(t *testing.T) {
		act := newManual()
		late := trigger("late", actionFunc(func(ctx context.Context, a *Attempt) triggerd.Outcome {
			act.calls <- &call{Attempt: a, ctx: ctx}
			<-ctx.Done()
			return triggerd.Outcome{Verb: triggerd.Done} // it could not be stopped any more
		}))
		r.specs["late"] = late
		r.engine.SetTriggers(r.specs)
		r.openTurns(ask("late", "1", ""))
		act.next(t, "1")
		if err := r.engine.Cancel(t.Context(), hashOf("late", "1")); err != nil {
			t.Fatal(err)
		}
		r.state("late", "1", Done)
	})
	t.Run("final or unknown is refused", func(t *testing.T) {
		wantErr(t, r.engine.Cancel(t.Context(), hashOf("a", "run")), triggerd.ErrConflict)
		wantErr(t, r.engine.Cancel(t.Context(), hashOf("a", "nobody")), triggerd.ErrNotFound)
		wantErr(t, r.engine.Cancel(t.Context(), "triggerd.>"), triggerd.ErrNotFound)
	})
	act.idle(t)
	if n := r.engine.Counts(); n["a"] != (Counts{}) || n["gone"] != (Counts{}) {
		t.Errorf("something is left: %+v", n)
	}
}

type actionFunc func(context.Context, *Attempt) triggerd.Outcome

func (actionFunc) NeedsRunning() bool                                     { return false }
func (f actionFunc) Run(ctx context.Context, a *Attempt) triggerd.Outcome { return f(ctx, a) }

// However a cancel meets an attempt that is just failing, it returns, and the turn is cancelled.
func TestCancelRacesWithFailure(t *testing.T) {
	const n = 60
	act := newManual()
	s := trigger("a", act)
	s.Retry.Attempts = 1000
	r := setup(t, s)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case c := <-act.calls:
				c.fail("again")
			case <-stop:
				return
			}
		}
	})
	for i := range n {
		r.openTurns(ask("a", fmt.Sprint(i), fmt.Sprint("lane", i%7)))
	}
	var cancels sync.WaitGroup
	for i := range n {
		cancels.Go(func() {
			for {
				err := r.engine.Cancel(t.Context(), hashOf("a", fmt.Sprint(i)))
				if errors.Is(err, triggerd.ErrConflict) && strings.Contains(err.Error(), "try again") {
					continue
				}
				if err != nil {
					t.Errorf("cancel %d: %v", i, err)
				}
				return
			}
		})
	}
	cancels.Wait()
	close(stop)
	wg.Wait()
	if got := r.tally(); got[Cancelled] != n {
		t.Errorf("turns by state: %v", got)
	}
}

// Two cancels of one turn are one, and a caller that goes away does not stop the end from being recorded.
func TestCancelTwiceAndGivenUp(t *testing.T) {
	act := actionFunc(func(ctx context.Context, _ *Attempt) triggerd.Outcome {
		<-ctx.Done()
		return triggerd.Outcome{Verb: triggerd.Retry}
	})
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", ""), ask("gone", "2", ""))
	r.until("it runs", func() bool { return r.engine.Counts()["a"].Running == 1 })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, hash := range []string{hashOf("a", "1"), hashOf("gone", "2")} {
		if err := r.engine.Cancel(gone, hash); err != nil {
			wantErr(t, err, context.Canceled)
		}
		if err := r.engine.Cancel(t.Context(), hash); err != nil {
			wantErr(t, err, triggerd.ErrConflict) // it was fast
		}
		if i := r.get(hash); i.State != Cancelled {
			t.Errorf("%s is %s", i.Key, i.State)
		}
	}
	// The engine was not confused by the caller that left: it goes on.
	r.openTurns(ask("gone", "3", ""))
	r.state("gone", "3", Held)
}

func (r *rig) retry(t *testing.T, hash string) triggerd.TurnKey {
	t.Helper()
	k, err := r.engine.Retry(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRetry(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	retry := r.retry
	o := ask("a", "1", "L")
	o.Input, o.HasInput = []byte{0, 1, 255}, true
	r.openTurns(o)
	act.next(t, "1").done()
	r.want("1", Done)

	t.Run("numbers are counted from the turn that is repeated, and are never taken twice", func(t *testing.T) {
		first := hashOf("a", "1")
		k1 := retry(t, first)
		act.next(t, "1").done()
		r.want("1", Done)
		k2 := retry(t, first)
		act.next(t, "1").done()
		r.want("1", Done)
		k3 := retry(t, k1.Hash())
		c := act.next(t, "1")
		if k1.Replay != 1 || k2.Replay != 2 || k3.Replay != 3 {
			t.Errorf("replays %d, %d, %d", k1.Replay, k2.Replay, k3.Replay)
		}
		if in, ok := c.Input.([]byte); !ok || string(in) != "\x00\x01\xff" || c.Thread != "L" || c.IdempotencyKey() != "c:a:1#3" {
			t.Errorf("replay sees input %#v, thread %q, key %s", c.Input, c.Thread, c.IdempotencyKey())
		}
		c.done()
		r.want("1", Done)
		if i := r.get(k3.Hash()); i.ReplayOf != "c:a:1#1" {
			t.Errorf("it repeats %s", i.ReplayOf)
		}
	})
	t.Run("at the same time gives each a turn of its own", func(t *testing.T) {
		var mu sync.Mutex
		got := map[int]bool{}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				k, err := r.engine.Retry(t.Context(), hashOf("a", "1"))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[k.Replay] = true
			})
		}
		wg.Wait()
		if len(got) != 5 {
			t.Errorf("numbers %v", got)
		}
		for range 5 {
			act.next(t, "1").done()
			r.want("1", Done)
		}
	})
}

func TestRetryPlace(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", "L"))
	act.next(t, "1").done()
	r.want("1", Done)
	retry := r.retry
	t.Run("is the end of its lane", func(t *testing.T) {
		r.openTurns(ask("a", "2", "L"), ask("a", "3", "L"))
		c := act.next(t, "2")
		retry(t, hashOf("a", "1"))
		c.done()
		act.next(t, "3").done()
		act.next(t, "1").done()
		for range 3 {
			r.final()
		}
	})
	t.Run("of a parked turn ends that", func(t *testing.T) {
		r.openTurns(ask("a", "p", ""))
		act.next(t, "p").out <- triggerd.Outcome{Verb: triggerd.Parked, Cause: "?"}
		r.want("p", Parked)
		k := retry(t, hashOf("a", "p"))
		if i := r.state("a", "p", Cancelled); i.Cause != "repeated as "+k.String() {
			t.Errorf("cause %q", i.Cause)
		}
		act.next(t, "p").done()
	})
	t.Run("is refused for a turn that goes on, and for none", func(t *testing.T) {
		r.openTurns(ask("gone", "h", ""))
		_, err := r.engine.Retry(t.Context(), hashOf("gone", "h"))
		wantErr(t, err, triggerd.ErrConflict)
		_, err = r.engine.Retry(t.Context(), hashOf("a", "nobody"))
		wantErr(t, err, triggerd.ErrNotFound)
	})
}

func TestFind(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	r.openTurns(ask("a", "1", ""), ask("a", "2", ""))
	r.final()
	r.final()
	h := hashOf("a", "1")
	for name, ref := range map[string]string{"hash": h, "prefix": h[:8], "key": "c:a:1"} {
		if got, err := r.engine.Find(t.Context(), ref); got != h || err != nil {
			t.Errorf("by %s: %s, %v", name, got, err)
		}
	}
	for _, ref := range []string{"", "zzzz", "c:a:9", "*", ">", strings.Repeat(">", 26)} {
		_, err := r.engine.Find(t.Context(), ref)
		wantErr(t, err, triggerd.ErrNotFound)
	}
	twins := ask("a", "1#1", "") // prints like the first replay of 1
	r.openTurns(twins)
	if _, err := r.engine.Retry(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	_, err := r.engine.Find(t.Context(), "c:a:1#1")
	wantErr(t, err, triggerd.ErrConflict)
}
