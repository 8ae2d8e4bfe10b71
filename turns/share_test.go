package turns

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/triggerd/triggerd"
)

// What is opened first runs first, whoever opened it, while the partition changes its owner and the connection its opener.
func TestOrderAcrossOpenersAndRunners(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	one, two := f.join(), f.join()
	p := partOf("L")
	r := one.own(p)
	one.open(ask("a", "1", "L"), ask("a", "2", "L")) // its opener and its runner are the same daemon
	two.open(ask("a", "3", "L"))
	one.open(ask("a", "4", "L"))
	act.next(t, "1").done()
	c := act.next(t, "2")
	c.done()
	running := act.next(t, "3")
	two.open(ask("a", "5", "L"), ask("a", "2", "L")) // the second one comes again
	now, cancel := context.WithCancel(t.Context())
	cancel()
	r.end(now) // a hand-over that cuts 3 short
	<-running.ctx.Done()
	one.open(ask("a", "6", "L")) // while nobody runs them
	next := two.own(p)
	one.open(ask("a", "7", "L"))
	two.open(ask("a", "8", "L"))
	for i := 3; i <= 8; i++ {
		c := act.next(t, fmt.Sprint(i))
		if c.Number != 1 {
			t.Errorf("attempt %d of %d", c.Number, i)
		}
		c.done()
	}
	if next.recovered.Unfinished != 4 {
		t.Errorf("the next owner found %+v", next.recovered)
	}
	f.until("all is done", func() bool { return one.state(hashOf("a", "8")).State == Done })
	if h := one.history(hashOf("a", "6")); len(h) != 4 || h[1].Daemon != two.name { // opened, claimed, running, done
		t.Errorf("history of 6: %+v", h)
	}
}

// Whoever opens a turn says nothing about who may run its partition.
func TestAnOpenersEpochFencesNobody(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	f.change = func(o *Options) {
		if o.Part == nil {
			o.Epoch = 99 // of whatever it owns
		}
	}
	one, two := f.join(), f.join()
	two.open(ask("a", "before", "L"))
	r := one.own(partOf("L"))
	act.next(t, "before").done()
	two.open(ask("a", "after", "L"))
	act.next(t, "after").done()
	for _, id := range []string{"before", "after"} {
		if i := recv(t, one.finals, "an end"); i.Key.EventID != id || i.State != Done {
			t.Errorf("%s is %s", i.Key, i.State)
		}
	}
	if r.Fenced() {
		t.Error("the owner was fenced")
	}
}

// An operator's repeat of a turn lands in another partition, whose owner has a lower epoch than the one that was asked.
func TestRepeatInAnotherPartition(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	m := f.join()
	key := triggerd.TurnKey{Connection: "c", Trigger: "a", EventID: "1"}
	again := key
	again.Replay = 1
	from, to := partOf(key.Hash()), partOf(again.Hash())
	if from == to {
		t.Fatal("both are in one partition: choose another id")
	}
	other := m.own(to)
	f.epochs[from] = 50
	r := m.own(from)
	m.open(ask("a", "1", ""))
	act.next(t, "1").done()
	if i := recv(t, m.finals, "the first end"); i.State != Done {
		t.Fatalf("it is %s", i.State)
	}
	if got, err := r.Retry(t.Context(), key.Hash()); err != nil || got != again {
		t.Fatalf("repeated as %v, %v", got, err)
	}
	act.next(t, "1").done()
	if i := recv(t, m.finals, "the second end"); i.Key != again || i.State != Done {
		t.Errorf("%s is %s", i.Key, i.State)
	}
	if other.Fenced() || r.Fenced() {
		t.Error("an owner was fenced")
	}
}

// A turn that cannot even be opened ends at once, and its end is told by whoever runs its partition, once, though its opener died.
func TestEndAtTheOpening(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	one, two := f.join(), f.join()
	bad := func(id string) triggerd.Opening {
		o := ask("a", id, "L")
		o.HasInput, o.Input = true, func() {} // no JSON
		return o
	}
	r := one.own(partOf("L"))
	two.open(bad("1"))
	if i := recv(t, one.finals, "the end"); i.Key.EventID != "1" || i.State != Dead {
		t.Fatalf("%s is %s", i.Key, i.State)
	}
	f.until("the checkpoint knows", func() bool { return r.checkpointNow().Told > r.low.seen })
	r.end(t.Context())
	two.open(bad("2")) // while nobody runs it
	next := two.own(partOf("L"))
	if i := recv(t, two.finals, "the end"); i.Key.EventID != "2" || next.recovered.Finals != 1 {
		t.Errorf("%s, %+v", i.Key, next.recovered)
	}
}

// Only the owner of the partition knows its lanes and its pauses.
func TestTheOwnerDecides(t *testing.T) {
	act := newManual()
	skips := trigger("s", act)
	skips.Overlap = OverlapSkip
	quiet := trigger("q", act)
	quiet.SkipPaused = true
	f := newFleet(t, skips, trigger("a", act), quiet)
	one, two := f.join(), f.join()
	p := partOf("L")
	r := one.own(p)
	for _, key := range []string{"a", "q"} {
		if err := r.Pause(t.Context(), key, Pause{}); err != nil {
			t.Fatal(err)
		}
	}
	two.open(ask("s", "1", "L"))
	c := act.next(t, "1")
	two.open(ask("s", "2", "L"), ask("q", "3", "L"), ask("a", "4", "L"))
	want := map[string]State{"2": Skipped, "3": Skipped}
	for range want {
		i := recv(t, one.finals, "a skip")
		if i.State != want[i.Key.EventID] {
			t.Errorf("%s is %s (%s)", i.Key, i.State, i.Cause)
		}
	}
	if why := two.state(hashOf("s", "2")).Cause; why != "overlap: skip; blocked by c:s:1" {
		t.Errorf("2 was skipped because of %q", why)
	}
	f.until("4 is held", func() bool { return two.state(hashOf("a", "4")).State == Held })
	c.done()
	recv(t, one.finals, "the end of 1")
	two.open(ask("s", "5", "L"))
	act.next(t, "5").done() // the lane was free
	// What an owner has not decided when it goes is decided by the next one.
	recv(t, one.finals, "the end of 5")
	r.end(t.Context())
	two.open(ask("s", "6", "L"), ask("s", "7", "L"), ask("q", "8", "L"))
	next := two.own(p)
	two.ends(map[string]State{"7": Skipped, "8": Skipped}) // 5 may be told again
	act.next(t, "6").done()
	two.ends(map[string]State{"6": Done})
	if err := next.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	act.next(t, "4").done()
}

// What waits for its lane does so wherever it was opened, and for each owner of the partition.
func TestQueuedTurnsAreNotSkippedByOthers(t *testing.T) {
	act := newManual()
	s := trigger("s", act)
	s.Overlap = OverlapSkip
	f := newFleet(t, s)
	a, b := f.join(), f.join()
	old := a.own(partOf("L"))
	queues := func(id string) triggerd.Opening { o := ask("s", id, "L"); o.Queues = true; return o }
	b.open(queues("1"), queues("2"), queues("3"))
	c := act.next(t, "1")
	f.until("the owner has met all", func() bool { return old.Counts()["s"].Queued == 2 })
	old.Fence()
	b.own(partOf("L"))
	c.done()
	for _, id := range []string{"1", "2", "3"} { // the first one was cut short
		act.next(t, id).done()
		if i := recv(t, b.finals, "an end"); i.Key.EventID != id || i.State != Done {
			t.Errorf("%s is %s, want %s done", i.Key.EventID, i.State, id)
		}
	}
}

// A turn that is being skipped is in nobody's way.
func TestSkippedTurnBlocksNone(t *testing.T) {
	act := newManual()
	s := trigger("s", act)
	s.Overlap = OverlapSkip
	f := newFleet(t, s)
	m := f.join()
	r := m.own(partOf("L"))
	m.open(ask("s", "1", "L"))
	c := act.next(t, "1")
	reached := r.gate.arm()
	m.open(ask("s", "2", "L"))
	recv(t, reached, "the skip that is about to be written")
	c.done()
	if i := recv(t, m.finals, "the end of 1"); i.Key.EventID != "1" {
		t.Fatalf("%s ended", i.Key)
	}
	m.open(ask("s", "3", "L"))
	act.next(t, "3").done()
	r.gate.open()
	for want := map[string]State{"2": Skipped, "3": Done}; len(want) > 0; {
		i := recv(t, m.finals, "an end")
		if want[i.Key.EventID] != i.State {
			t.Errorf("%s is %s (%s)", i.Key, i.State, i.Cause)
		}
		delete(want, i.Key.EventID)
	}
}

// What is opened while a successor reads the turns that are old must be read, too.
func TestOpeningBetweenTwoReads(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	p := partOf("L")
	lanes := lanesIn(p, 2)
	old := a.own(p)
	if err := old.Pause(t.Context(), "a", Pause{}); err != nil {
		t.Fatal(err)
	}
	a.open(ask("a", "old", lanes[0]))
	hash := hashOf("a", "old")
	f.until("it is held", func() bool { return a.state(hash).State == Held })
	next := b.prepare(p)
	// The old owner's last entry on an old turn is stored after a new one was opened, and both after the successor has read the rest.
	cp := checkpoint{Floor: 1 << 40, Older: []string{hash}}
	b.open(ask("a", "new", lanes[1]))
	last, err := next.ledger.last(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	late := *last
	rawEntry(t, b.bus, last.Subject, last.Seq, &late, nil)
	if _, found, err := next.readLedger(t.Context(), cp); err != nil || found[hash] == nil {
		t.Fatalf("found %v, %v", found, err)
	}
	opened, err := next.ledger.last(t.Context(), hashOf("a", "new"))
	if err != nil {
		t.Fatal(err)
	}
	old.Fence()
	if next.position >= opened.Seq {
		t.Errorf("read up to %d, so what was opened at %d is never met", next.position, opened.Seq)
	}
}

// A repeat that an engine opens says nothing about what others have opened before it.
func TestCheckpointPassesNothingUnread(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	key := triggerd.TurnKey{Connection: "c", Trigger: "a", EventID: "1"}
	p := partOf(key.Hash())
	r := a.own(p)
	a.open(ask("a", "1", ""))
	act.next(t, "1").done()
	recv(t, a.finals, "its end")
	f.until("all is read", func() bool {
		c := r.checkpointNow()
		return c.Told > 3
	})
	r.unfollow() // its reader is behind
	f.until("nobody reads", func() bool { return a.follower.idle() })
	lane := lanesIn(p, 1)[0]
	b.open(ask("a", "2", lane))
	unread, err := r.ledger.last(t.Context(), hashOf("a", "2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Retry(t.Context(), key.Hash()); err != nil {
		t.Fatal(err)
	}
	if c := r.checkpointNow(); c.Told > unread.Seq || c.Floor > unread.Seq {
		t.Errorf("the checkpoint %+v has passed an opening at %d that was not read", c, unread.Seq)
	}
	if err := r.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.kill()
	b.own(p)
	act.next(t, "2").done()
}

// idle reports whether the follower has nobody to read for, and knows it.
func (f *Follower) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.engines) == 0 && len(f.changed) == 0
}

// The runner dies at each of these moments; nothing is lost, and what was not told is told again.
func TestRunnerDies(t *testing.T) {
	t.Run("before it has read an opening", func(t *testing.T) {
		act := newManual()
		f := newFleet(t, trigger("a", act))
		a, b := f.join(), f.join()
		r := a.own(partOf("L"))
		r.unfollow()
		b.open(ask("a", "1", "L"), ask("a", "2", "L"))
		if err := r.saveCheckpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.kill()
		b.own(partOf("L"))
		act.next(t, "1").done()
		act.next(t, "2").done()
	})
	t.Run("before an end is told", func(t *testing.T) {
		act := newManual()
		f := newFleet(t, trigger("a", act))
		asked := make(chan Info, 64)
		b := f.join()
		f.change = func(o *Options) {
			o.OnFinal = func(_ context.Context, i Info) error {
				asked <- i
				return errors.New("nobody listens")
			}
		}
		a := f.join()
		r := a.own(partOf("L"))
		b.open(ask("a", "1", "L"), ask("a", "2", "L"))
		act.next(t, "1").done()
		recv(t, asked, "the end of 1")
		f.until("the end of 1 is read", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.low.seen >= 4
		})
		if err := r.saveCheckpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.kill()
		f.change = nil
		next := b.own(partOf("L"))
		if i := recv(t, b.finals, "the end of 1"); i.Key.EventID != "1" || next.recovered.Finals != 1 {
			t.Errorf("%s, %+v", i.Key, next.recovered)
		}
		act.next(t, "2").done()
	})
}

// A checkpoint that an older owner has stored meanwhile is replaced at the end of Recover, not a while later.
func TestRecoverReplacesTheCheckpoint(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	a, b := f.join(), f.join()
	p := partOf("L")
	old := a.own(p)
	next := b.prepare(p)
	if _, err := next.usableCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.open(ask("a", "1", "L"))
	f.until("the old owner's checkpoint moves", func() bool {
		if err := old.saveCheckpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		return old.checkpoints.saved.Told > 1
	})
	if err := next.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stored checkpoint
	f.stored(b, p, &stored)
	if stored.Epoch != next.opts.Epoch {
		t.Errorf("the checkpoint is %+v", stored)
	}
	// So the old one's next is refused, which tells it.
	a.open(ask("a", "2", "L"))
	f.until("the old owner is refused", func() bool { return errors.Is(old.saveCheckpoint(t.Context()), triggerd.ErrFenced) })
	old.fenced()
	next.Drain(t.Context())
}
