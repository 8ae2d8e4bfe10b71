package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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

// A runner is frozen between knowing that it is the owner and writing. When it goes on it writes nothing that counts, whatever it is, and learns why.
func TestOvertakenRunner(t *testing.T) {
	type scene struct {
		*fleet
		a, b *member
		old  *runner
		act  *manual
	}
	for name, c := range map[string]struct {
		before func(s *scene) func() // what is there; returns what makes the engine write
		after  State                 // of turn 1 after the takeover
	}{
		"a start": {func(s *scene) func() {
			return func() { s.a.open(ask("a", "1", "L")) }
		}, Running},
		"an end": {func(s *scene) func() {
			s.a.open(ask("a", "1", "L"))
			c := s.act.next(s.T, "1")
			return c.done
		}, Running},
		"a failure": {func(s *scene) func() {
			s.a.open(ask("a", "1", "L"))
			c := s.act.next(s.T, "1")
			return func() { c.fail("bad luck") }
		}, Running},
		"a skip": {func(s *scene) func() {
			return func() {
				s.a.open(ask("p", "1", "L"))
			}
		}, Skipped},
		"a hold": {func(s *scene) func() {
			if err := s.old.Pause(s.Context(), "a", Pause{}); err != nil {
				s.Fatal(err)
			}
			return func() { s.a.open(ask("a", "1", "L")) }
		}, Held},
		"a release": {func(s *scene) func() {
			if err := s.old.Pause(s.Context(), "a", Pause{}); err != nil {
				s.Fatal(err)
			}
			s.a.open(ask("a", "1", "L"))
			s.until("it is held", func() bool { return s.a.state(hashOf("a", "1")).State == Held })
			s.until("the board has it", func() bool { return s.old.Counts()["a"].Held == 1 })
			return func() {
				go func() { _ = s.old.Resume(s.Context(), "a") }()
			}
		}, Running},
		"a cancel": {func(s *scene) func() {
			if err := s.old.Pause(s.Context(), "a", Pause{}); err != nil {
				s.Fatal(err)
			}
			s.a.open(ask("a", "1", "L"))
			s.until("it is held", func() bool { return s.a.state(hashOf("a", "1")).State == Held })
			s.until("the board has it", func() bool { return s.old.Counts()["a"].Held == 1 })
			return func() {
				go func() { _ = s.old.Cancel(s.Context(), hashOf("a", "1")) }()
			}
		}, Held},
		"a carry": {func(s *scene) func() {
			if err := s.old.Pause(s.Context(), "a", Pause{}); err != nil {
				s.Fatal(err)
			}
			s.a.open(ask("a", "1", "L"))
			s.until("it is held", func() bool { return s.a.state(hashOf("a", "1")).State == Held })
			s.until("the board has it", func() bool { return s.old.Counts()["a"].Held == 1 })
			return func() {
				go func() { _ = s.old.carry(s.Context(), 1<<62) }()
			}
		}, Held},
	} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			paused := trigger("p", act)
			paused.SkipPaused = true
			f := newFleet(t, trigger("a", act), paused)
			s := &scene{fleet: f, a: f.join(), b: f.join(), act: act}
			s.old = s.a.own(partOf("L"))
			if err := s.old.Pause(t.Context(), "p", Pause{}); err != nil {
				t.Fatal(err)
			}
			write := c.before(s)
			reached := s.old.gate.arm()
			write()
			recv(t, reached, "the write")
			s.old.unfollow() // all of it is frozen
			next := s.b.own(partOf("L"))
			trig := "a"
			if name == "a skip" {
				trig = "p"
			}
			hash := hashOf(trig, "1")
			f.until("the next owner is as far", func() bool { return s.b.state(hash).State == c.after })
			s.old.gate.open()
			s.old.fenced()
			if i := s.b.state(hash); i.State != c.after {
				t.Errorf("it is %s, want %s", i.State, c.after)
			}
			for _, h := range s.b.history(hash) {
				if h.Seq > s.old.position && h.Daemon != s.b.name && h.Epoch != 0 && h.State != Held && h.State != Running {
					t.Errorf("the overtaken one has written %+v", h)
				}
			}
			if next.Fenced() {
				t.Error("the owner was fenced")
			}
			if c.after == Running {
				act.next(t, "1").done()
				if i := recv(t, s.b.finals, "its end"); i.State != Done {
					t.Errorf("it is %s", i.State)
				}
			}
		})
	}
}

// unfollow makes the engine read nothing more.
func (r *runner) unfollow() { r.m.follower.remove(r.Engine) }

// A frozen runner that goes on to read first meets a turn that its successor has met, too.
func TestOvertakenRunnerMeetsATurn(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	p := partOf("L")
	old := a.own(p)
	old.unfollow()
	a.frozen.Store(true)
	next := b.own(p)
	b.open(ask("a", "1", "L"))
	c := act.next(t, "1")
	b.open(ask("a", "2", "L"))
	a.frozen.Store(false)
	a.follower.add(old.Engine)
	old.fenced()
	c.done()
	act.next(t, "2").done()
	for range 2 {
		if i := recv(t, b.finals, "an end"); i.State != Done || i.Attempt != 1 {
			t.Errorf("%s is %s after %d attempts", i.Key, i.State, i.Attempt)
		}
	}
	if next.Fenced() {
		t.Error("the owner was fenced")
	}
	select {
	case i := <-a.finals:
		t.Errorf("the overtaken one tells of %s", i.Key)
	default:
	}
}

// After Fence nothing is written, though the lease still says that all is well.
func TestFenceEndsEverything(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	m := f.join()
	r := m.own(partOf("L"))
	m.open(ask("a", "1", "L"))
	c := act.next(t, "1")
	ended := make(chan error, 1)
	go func() { ended <- r.Cancel(t.Context(), hashOf("a", "1")) }()
	recv(t, c.ctx.Done(), "the cancel to reach the attempt")
	r.Fence()
	r.fenced()
	before := r.checkpoints.saved
	if err := r.saveCheckpoint(t.Context()); !errors.Is(err, triggerd.ErrFenced) {
		t.Errorf("a checkpoint after the fence: %v", err)
	}
	r.end(t.Context())
	if !r.checkpoints.saved.equal(before) {
		t.Errorf("the checkpoint moved to %+v", r.checkpoints.saved)
	}
	if err := recv(t, ended, "Cancel to return"); err == nil {
		// The attempt may have ended before the fence.
		if i := m.state(hashOf("a", "1")); i.State != Cancelled {
			t.Errorf("cancelled, but %s", i.State)
		}
	}
	if n := len(m.history(hashOf("a", "1"))); n > 3 {
		t.Errorf("%d entries", n)
	}
}

// The checkpoint of a fenced engine does not say that what it has dropped is over.
func TestFencedEngineForgetsNothingForItsSuccessor(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	p := partOf("L")
	r := a.own(p)
	a.open(ask("a", "1", "L"))
	act.next(t, "1")
	f.until("it has read that", func() bool { return r.checkpointNow().Told > 1 })
	r.Fence()
	f.until("the attempt has ended", func() bool { return r.Counts()["a"].Running == 0 })
	_ = r.saveCheckpoint(t.Context())
	r.fenced()
	next := b.own(p)
	if next.recovered.Unfinished != 1 {
		t.Errorf("the successor found %+v", next.recovered)
	}
	act.next(t, "1").done()
	recv(t, b.finals, "its end")
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

// A stop does not wait for an owner to be known: it may never be.
func TestDrainWhileNobodyKnows(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	a, b := f.join(), f.join()
	r := a.own(partOf("L"))
	a.frozen.Store(true)
	b.open(ask("a", "1", "L"))
	f.until("it wants to start", func() bool { return r.Counts()["a"].Running == 1 })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() { defer close(done); r.stopWork(ErrShutdown); r.actions.Wait() }() // as Drain does before it gives up recording
	recv(t, done, "the start to be given up")
	a.frozen.Store(false)
	r.end(now)
	b.own(partOf("L"))
}

func sameStates(m *member, want map[string]State) bool {
	for id, s := range want {
		if m.state(hashOf("a", id)).State != s {
			return false
		}
	}
	return true
}

// Yield waits until nothing runs and nothing is written; when that takes too long everything goes on.
func TestYield(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	a, b := f.join(), f.join()
	p := partOf("L")
	r := a.own(p)
	a.open(ask("a", "1", "L"), ask("a", "2", "L"))
	c := act.next(t, "1")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r.Yield(short) {
		t.Fatal("it yields while an attempt runs")
	}
	c.done()
	c = act.next(t, "2") // it goes on
	yielded := make(chan bool, 1)
	go func() { yielded <- r.Yield(t.Context()) }()
	f.until("it yields", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.yielding
	})
	b.open(ask("a", "3", "L"), ask("a", "4", lanesIn(p, 2)[1]))
	c.done()
	if !recv(t, yielded, "Yield to return") {
		t.Fatal("it does not yield")
	}
	f.until("the end of 2 is told", func() bool { return len(a.finals) == 2 })
	act.idle(t)
	r.Drain(t.Context())
	next := b.own(p)
	if next.recovered.CutShort != 0 || next.recovered.Unfinished != 2 {
		t.Errorf("the next owner found %+v", next.recovered)
	}
	var ids []string
	for range 2 {
		c := recv(t, act.calls, "an attempt")
		ids = append(ids, c.Key.EventID)
		c.done()
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"3", "4"}) {
		t.Errorf("ran %v", ids)
	}
	f.until("all is done", func() bool { return sameStates(b, map[string]State{"1": Done, "2": Done, "3": Done, "4": Done}) })
}

// A decision that is being written keeps an engine from yielding.
func TestYieldWaitsForDecisions(t *testing.T) {
	f := newFleet(t, trigger("a", newManual()))
	m := f.join()
	r := m.own(partOf("L"))
	if err := r.Pause(t.Context(), "a", Pause{}); err != nil {
		t.Fatal(err)
	}
	reached := r.gate.arm()
	m.open(ask("a", "1", "L"))
	recv(t, reached, "the decision")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r.Yield(short) {
		t.Error("it yields while a decision is being written")
	}
	r.gate.open()
	if !r.Yield(t.Context()) {
		t.Error("it does not yield")
	}
	if s := m.state(hashOf("a", "1")).State; s != Held {
		t.Errorf("it is %s", s)
	}
	m.open(ask("a", "2", "L"))
	f.until("it was read", func() bool { return r.Counts()["a"].Queued == 1 })
	if n := len(m.history(hashOf("a", "2"))); n != 1 {
		t.Errorf("%d entries: written after the yield", n)
	}
}
