package turns

import (
	"errors"
	"testing"

	"github.com/triggerd/triggerd"
)

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
