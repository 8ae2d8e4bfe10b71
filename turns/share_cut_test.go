package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

// stored reads a partition's checkpoint.
func (f *fleet) stored(m *member, p Part, c *checkpoint) {
	f.Helper()
	data, err := m.bus.GetControl(f.Context(), checkpointKey(&p))
	if err != nil || data == nil {
		f.Fatalf("checkpoint of %s: %q, %v", p, data, err)
	}
	if err := json.Unmarshal(data, c); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) firstSeq(m *member) uint64 {
	f.Helper()
	info, err := m.bus.Turns.Info(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return info.State.FirstSeq
}

// soon makes every entry older than any retention.
const soon = time.Millisecond

func later() time.Time { return time.Now().Add(time.Hour) }

// cutAll removes what ended, as the daemon does.
func (f *fleet) cutAll(m *member, parts ...Part) {
	f.Helper()
	if err := Cut(f.Context(), m.bus, parts, soon, later()); err != nil {
		f.Fatal(err)
	}
}

// What an unfinished turn, an untold end or an unread opening needs is never removed; what is over is, whatever idle partitions say.
func TestCutKeepsWhatIsNeeded(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act), trigger("h", act))
	f.change = func(o *Options) { o.Retention = soon }
	m := f.join()
	lanes := []string{"L", ""}
	p := partOf("L")
	for i := 0; lanes[1] == ""; i++ {
		if l := fmt.Sprint("M", i); partOf(l) != p {
			lanes[1] = l
		}
	}
	q := partOf(lanes[1])
	r, idle := m.own(p), m.own(q)
	if err := r.Pause(t.Context(), "h", Pause{}); err != nil {
		t.Fatal(err)
	}
	m.open(ask("a", "over", "L"))
	act.next(t, "over").done()
	recv(t, m.finals, "an end")
	m.open(ask("h", "held", "L"))
	f.until("it is held", func() bool { return r.Counts()["h"].Held == 1 })
	m.open(ask("a", "running", "L"))
	running := act.next(t, "running")

	other := Part{Pool: "elsewhere", Number: 3}
	f.cutAll(m, p, q, other)
	if first := f.firstSeq(m); first != 1 {
		t.Fatalf("cut up to %d though nobody knows what %s holds", first, other)
	}
	save := func() {
		t.Helper()
		for _, r := range []*runner{r, idle} {
			if err := r.saveCheckpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	heldSeq := func() uint64 { return r.board.turns[hashOf("h", "held")].wholeSeq }
	save()
	f.cutAll(m, p, q)
	if first := f.firstSeq(m); first != heldSeq() || first == 1 {
		t.Errorf("cut up to %d, the held turn stands on %d", first, heldSeq())
	}
	if err := r.Carry(t.Context(), later()); err != nil {
		t.Fatal(err)
	}
	save()
	f.cutAll(m, p, q)
	whole := r.board.turns[hashOf("a", "running")].wholeSeq
	if first := f.firstSeq(m); first != whole {
		t.Errorf("cut up to %d, the running turn stands on %d", first, whole)
	}
	// Openings that the owner has not read, in an idle partition and in a busy one.
	idle.unfollow()
	r.unfollow()
	f.until("nobody reads", m.follower.idle)
	m.open(ask("a", "unread", lanes[1]), ask("a", "unread too", "L"))
	running.done()
	recv(t, m.finals, "an end")
	if err := r.Carry(t.Context(), later()); err != nil {
		t.Fatal(err)
	}
	save()
	f.cutAll(m, p, q)
	for _, id := range []string{"unread", "unread too"} {
		if _, err := m.opener.Show(t.Context(), hashOf("a", id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	m.kill()
	f.change = nil
	next := f.join()
	for _, part := range []Part{p, q} {
		next.own(part)
	}
	got := map[string]bool{}
	for range 2 {
		c := recv(t, act.calls, "an attempt")
		got[c.Key.EventID] = true
		if string(c.Event.Payload) != "payload of "+c.Key.EventID {
			t.Errorf("%s has the payload %q", c.Key, c.Event.Payload)
		}
		c.done()
	}
	if !got["unread"] || !got["unread too"] {
		t.Errorf("ran %v", got)
	}
	r = next.runners[0]
	if err := r.Resume(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	if c := act.next(t, "held"); string(c.Event.Payload) != "payload of held" {
		t.Errorf("the held turn has the payload %q", c.Event.Payload)
	} else {
		c.done()
	}
}

// An end that nobody was told of stays, and is told by the next owner; then everything goes.
func TestCutKeepsUntoldEnds(t *testing.T) {
	act := newManual()
	f := newFleet(t, trigger("a", act))
	b := f.join()
	f.change = func(o *Options) {
		o.OnFinal = func(ctx context.Context, _ Info) error { <-ctx.Done(); return ctx.Err() }
	}
	a := f.join()
	p := partOf("L")
	r := a.own(p)
	b.open(ask("a", "1", "L"))
	act.next(t, "1").done()
	f.until("its end is stored", func() bool { return b.state(hashOf("a", "1")).State == Done })
	f.until("and read", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.low.seen >= 3
	})
	if err := r.saveCheckpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.cutAll(b, p)
	if i, err := b.opener.Get(t.Context(), hashOf("a", "1")); err != nil || i == nil {
		t.Fatalf("the untold end is gone: %v, %v", i, err)
	}
	a.kill()
	f.change = nil
	next := b.own(p)
	if i := recv(t, b.finals, "the end"); i.State != Done {
		t.Errorf("it is %s", i.State)
	}
	f.until("the checkpoint passes it", func() bool {
		if err := next.saveCheckpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.cutAll(b, p)
		i, err := b.opener.Get(t.Context(), hashOf("a", "1"))
		return err == nil && i == nil
	})
}

// All turns of triggers with one place are in one partition, of their pool.
func TestPlaceAndPool(t *testing.T) {
	act := newManual()
	limited := trigger("a", act)
	limited.Place, limited.Limit = "a", 2
	far := trigger("b", act)
	far.Pool, far.Place = "gpu", "a"
	f := newFleet(t, limited, far)
	m := f.join()
	p := partOf("a")
	m.own(p)
	var os []triggerd.Opening
	for i := range 6 {
		os = append(os, ask("a", fmt.Sprint(i), []string{"", fmt.Sprint("L", i)}[i%2]))
	}
	m.open(os...)
	for i := range 6 {
		last, err := m.opener.ledger.last(t.Context(), hashOf("a", fmt.Sprint(i)))
		if err != nil || last == nil {
			t.Fatal(last, err)
		}
		if got, ok := PartOf(last.Subject); !ok || got != p {
			t.Errorf("turn %d is in %v", i, got)
		}
	}
	m.open(ask("b", "1", "L"), ask("b", "2", ""))
	for _, id := range []string{"1", "2"} {
		last, err := m.opener.ledger.last(t.Context(), hashOf("b", id))
		if err != nil || last == nil {
			t.Fatal(last, err)
		}
		if got, ok := PartOf(last.Subject); !ok || got != (Part{Pool: "gpu", Number: p.Number}) {
			t.Errorf("turn %s is in %v", id, got)
		}
	}
	one, two := recv(t, act.calls, "an attempt"), recv(t, act.calls, "another")
	act.idle(t) // the limit holds over lanes
	for c := one; ; c = recv(t, act.calls, "the next") {
		c.done()
		if c.Key.EventID == "5" {
			break
		}
		if c == one {
			two.done()
		}
	}
}

// A key is opened once, though its trigger's pool, place or thread has changed since, and the daemon that opens it now has opened none before.
func TestKeyIsOpenedOnceWhateverItsPlace(t *testing.T) {
	plain := trigger("a", newManual())
	placed := trigger("a", newManual())
	placed.Place = "somewhere"
	pooled := trigger("a", newManual())
	pooled.Pool = "gpu"
	type way struct {
		spec *Spec
		lane string
	}
	ways := map[string]way{"plain": {plain, ""}, "placed": {placed, ""}, "pooled": {pooled, ""}, "lane": {plain, "L"}, "placed lane": {placed, "L"}}
	f := newFleet(t)
	for was, first := range ways {
		for is, then := range ways {
			id := was + " then " + is
			f.specs = func(*member) map[string]*Spec { return map[string]*Spec{"a": first.spec} }
			f.join().open(ask("a", id, first.lane))
			f.specs = func(*member) map[string]*Spec { return map[string]*Spec{"a": then.spec} }
			f.join().open(ask("a", id, then.lane))
		}
	}
	m := f.join()
	all, err := m.opener.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(ways)*len(ways) {
		t.Errorf("%d turns are open, want %d", len(all), len(ways)*len(ways))
	}
}
