package turns

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
)

// expire makes everything that is stored so far too old to be kept.
func (r *rig) expire() {
	r.Helper()
	if err := r.engine.Expire(r.Context(), time.Now().Add(2*r.engine.wholeAfter+time.Second)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) entriesLeft() uint64 {
	r.Helper()
	info, err := r.bus.Turns.Info(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return info.State.Msgs
}

// Finished turns go, with their keys. Unfinished ones stay whole, whatever their age, and in their order.
func TestExpire(t *testing.T) {
	act := &auto{}
	r := setup(t, trigger("a", act), trigger("b", act))
	r.openTurns(ask("a", "over 1", ""), ask("a", "over 2", ""))
	r.until("both are over", func() bool { return len(act.ran()) == 2 && r.engine.Counts()["a"] == Counts{} })
	r.pause("b", Pause{})
	r.openTurns(ask("b", "held 1", "L"), ask("b", "held 2", "L"), ask("b", "held 3", ""))

	r.expire()
	if n := r.entriesLeft(); n != 3 {
		t.Fatalf("%d entries are left, want one of each held turn", n)
	}
	if _, err := r.engine.Show(t.Context(), hashOf("a", "over 1")); !errors.Is(err, triggerd.ErrNotFound) {
		t.Errorf("a turn that has expired: %v", err)
	}
	r.expire() // again, and after a restart
	r.restart()
	r.expire()
	if n := r.entriesLeft(); n != 3 {
		t.Fatalf("%d entries are left after a restart", n)
	}

	r.openTurns(ask("b", "held 1", "L"), ask("a", "over 1", ""), ask("b", "held 4", "L"))
	r.resume("b")
	r.until("all are over", func() bool { return len(act.ran()) == 7 && r.engine.Counts()["b"] == Counts{} })
	var lane []string
	for _, id := range act.ran() {
		if id == "held 1" || id == "held 2" || id == "held 4" {
			lane = append(lane, id)
		}
	}
	if !slices.Equal(lane, []string{"held 1", "held 2", "held 4"}) {
		t.Errorf("the lane ran %v", lane)
	}
	for _, id := range []string{"held 1", "held 3"} {
		d, err := r.engine.Show(t.Context(), hashOf("b", id))
		if err != nil || d.State != Done || string(d.Event.Payload) != "payload of "+id || d.Cause != "" {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
}

// failedOnce has a turn whose first attempt failed with a result, and whose next one is far away.
func failedOnce(t *testing.T) (*rig, *manual) {
	t.Helper()
	act := newManual()
	s := trigger("a", act)
	s.Retry.Initial, s.Retry.Max = 0, 0
	r := setup(t, s)
	r.openTurns(ask("a", "1", ""))
	act.next(t, "1").out <- triggerd.Outcome{
		Verb: triggerd.Retry, Cause: "not yet", RetryAfter: time.Hour, Result: triggerd.Result{Status: 503, Output: []byte("busy")},
	}
	r.until("it waits", func() bool { return r.engine.Counts()["a"].Queued == 1 })
	return r, act
}

// A turn that fails and waits keeps its attempts, its wait and what the last attempt left, and can still be repeated after its end.
func TestExpireBetweenAttempts(t *testing.T) {
	r, act := failedOnce(t)
	r.expire()
	r.restart()
	d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if d.State != Failed || d.Attempt != 1 || d.Cause != "not yet" || time.Until(d.NotBefore) < 50*time.Minute || d.Result == nil || d.Result.Status != 503 || string(d.Output) != "busy" {
		t.Errorf("it is %+v", d)
	}
	if err := r.engine.Cancel(t.Context(), hashOf("a", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Retry(t.Context(), hashOf("a", "1")); err != nil {
		t.Fatal(err)
	}
	if c := act.next(t, "1"); string(c.Event.Payload) != "payload of 1" || c.Key.Replay != 1 {
		t.Errorf("it repeats %q as %s", c.Event.Payload, c.Key)
	} else {
		c.done()
	}
}

// A turn that runs is waited for. One that took long is written whole with its end, so that it outlives its beginning.
func TestExpireWhileRunning(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", ""))
	c := act.next(t, "1")
	r.expire()
	if n := r.entriesLeft(); n != 1 {
		t.Fatalf("%d entries are left of a turn that runs", n)
	}
	r.engine.wholeAfter = 0 // this is long
	c.done()
	r.want("1", Done)
	last, err := r.engine.ledger.last(t.Context(), hashOf("a", "1"))
	if err != nil || !last.whole() {
		t.Fatalf("its end is not whole: %v", err)
	}
	if err := r.bus.Turns.Purge(t.Context(), jetstream.WithPurgeSequence(last.Seq)); err != nil {
		t.Fatal(err)
	}
	if d, err := r.engine.Show(t.Context(), hashOf("a", "1")); err != nil || string(d.Event.Payload) != "payload of 1" {
		t.Errorf("it shows %+v, %v", d, err)
	}
}

// Turns come, run, are paused and expire at the same time: each runs once.
func TestExpireUnderLoad(t *testing.T) {
	act := &auto{}
	r := setup(t, trigger("a", act))
	const n = 300
	stop := make(chan struct{})
	expired := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				expired <- nil
				return
			default:
			}
			if err := r.engine.Expire(t.Context(), time.Now().Add(2*r.engine.wholeAfter)); err != nil {
				expired <- err
				return
			}
		}
	}()
	for i := range n {
		if i%50 == 0 {
			r.pause("a", Pause{})
		}
		r.openTurns(ask("a", fmt.Sprint(i), fmt.Sprint(i%7)))
		if i%50 == 25 {
			r.resume("a")
		}
	}
	r.resume("a")
	r.until("all have run", func() bool { return len(act.ran()) >= n && r.engine.Counts()["a"] == Counts{} })
	close(stop)
	if err := <-expired; err != nil {
		t.Fatal(err)
	}
	ran := act.ran()
	slices.Sort(ran)
	if len(slices.Compact(ran)) != n || len(act.ran()) != n {
		t.Errorf("%d runs of %d turns", len(act.ran()), n)
	}
}

// What was carried is carried on, pass after pass, and leaves nothing behind.
func TestExpireAgainAndAgain(t *testing.T) {
	r := setup(t, trigger("b", &auto{}))
	r.pause("b", Pause{})
	r.openTurns(ask("b", "1", "L"), ask("b", "2", "L"), ask("b", "3", ""))
	for range 4 {
		r.expire()
	}
	if n := r.entriesLeft(); n != 3 {
		t.Errorf("%d entries are left of three turns", n)
	}
}

// A parked turn was told when it was parked; carrying it is no news.
func TestExpireTellsNothing(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	r.openTurns(ask("a", "1", ""))
	act.next(t, "1").out <- triggerd.Outcome{Verb: triggerd.Parked, Cause: "unknown"}
	r.want("1", Parked)
	if err := r.engine.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one carries what the first one has written
		r.expire()
		r.restart()
		if r.recovered.Finals != 0 {
			t.Fatal("it is told again")
		}
	}
}

// An owner that was overtaken no longer knows what is needed.
func TestExpireOfFormerOwner(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	r.openTurns(ask("a", "1", ""))
	r.want("1", Done)
	r.engine.Fence()
	wantErr(t, recv(t, r.ran, "Run"), triggerd.ErrFenced)
	r.ran <- nil // for the clean-up
	r.expire()
	if n := r.entriesLeft(); n != 2 {
		t.Errorf("%d entries are left, want all", n)
	}
}

// The result of the last attempt stays, also when another entry came after it.
func TestExpireKeepsResult(t *testing.T) {
	r, _ := failedOnce(t)
	r.engine.SetTriggers(map[string]*Spec{})
	r.until("it is held", func() bool { return r.engine.Counts()["a"].Held == 1 })
	r.expire()
	if d, err := r.engine.Show(t.Context(), hashOf("a", "1")); err != nil || d.Result == nil || d.Result.Status != 503 || string(d.Output) != "busy" {
		t.Errorf("it shows %+v, %v", d, err)
	}
}

// A turn that can never be read ends, instead of holding back what is older than it for ever.
func TestExpireOfUnreadableTurn(t *testing.T) {
	act := newManual()
	s := trigger("a", act)
	s.Retry.Initial, s.Retry.Max = 0, 0
	r := setup(t, s, trigger("b", &auto{}))
	r.openTurns(ask("a", "1", ""))
	act.next(t, "1").out <- triggerd.Outcome{Verb: triggerd.Retry, Cause: "not yet", RetryAfter: time.Hour}
	r.until("it waits", func() bool { return r.engine.Counts()["a"].Queued == 1 })
	if err := r.bus.Turns.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r.openTurns(ask("b", fmt.Sprint(i), ""))
	}
	r.until("the others are over", func() bool { return r.engine.Counts()["b"] == Counts{} })
	r.expire()
	r.until("it is dead", func() bool { return r.get(hashOf("a", "1")).State == Dead })
	r.until("what is older has gone", func() bool { r.expire(); return r.entriesLeft() <= 1 })
}
