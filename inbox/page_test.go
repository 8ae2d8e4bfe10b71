package inbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func pageOf(ids ...string) []triggerd.Event {
	page := make([]triggerd.Event, len(ids))
	for i, id := range ids {
		page[i] = testEvent("github", id)
	}
	return page
}

// order lists the stored ids of a connection, oldest first.
func order(t *testing.T, b *bus.Bus, connection string) []string {
	t.Helper()
	evs, err := List(bustest.Context(t), b, Query{Connection: connection})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 0, len(evs))
	for _, ev := range slices.Backward(evs) {
		ids = append(ids, ev.ID)
	}
	return ids
}

func TestAppendPageLeavesOutWhatIsStored(t *testing.T) {
	for _, tc := range []struct{ name, stored, page, duplicates string }{
		{"nothing stored", "", "a b c d", ""},
		{"the first", "a", "a b c d", "a"},
		{"the last", "d", "a b c d", "d"},
		{"in the middle", "b", "a b c d", "b"},
		{"several", "a c", "a b c d", "a c"},
		{"all but one", "a b d", "a b c d", "a b d"},
		{"all", "a b c d", "a b c d", "a b c d"},
		{"a page of one", "", "a", ""},
		{"a page of one that is stored", "a", "a", "a"},
		{"an empty page", "", "", ""},
		{"a repeat inside the page", "", "a b a c", "a"},
		{"nothing but repeats", "", "a a a", "a a"},
		{"a repeat of what is stored", "a", "b a c a", "a a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := bustest.Open(t)
			fence := acquire(t, b, "github")
			for _, id := range strings.Fields(tc.stored) {
				mustAppend(t, b, testEvent("github", id), fence)
			}
			page := strings.Fields(tc.page)
			rs, err := NewAppender(b).AppendPage(bustest.Context(t), pageOf(page...), nil, nil, fence)
			if err != nil || len(rs) != len(page) {
				t.Fatalf("%d receipts, %v", len(rs), err)
			}
			var duplicates, want []string
			for i, r := range rs {
				if r.Duplicate {
					duplicates = append(duplicates, page[i])
					continue
				}
				if ev, err := Get(bustest.Context(t), b, r.Seq); err != nil || ev.ID != page[i] {
					t.Errorf("the receipt of %s names %d, which holds %q: %v", page[i], r.Seq, ev.ID, err)
				}
			}
			if got := strings.Join(duplicates, " "); got != tc.duplicates {
				t.Errorf("duplicates %q, want %q", got, tc.duplicates)
			}
			for _, id := range append(strings.Fields(tc.stored), page...) {
				if !slices.Contains(want, id) {
					want = append(want, id)
				}
			}
			if got := order(t, b, "github"); !slices.Equal(got, want) {
				t.Errorf("stored %v, want %v", got, want)
			}
		})
	}
}

func TestAppendPageCarriesThePositionOnItsLastEvent(t *testing.T) {
	b := bustest.Open(t)
	positions := func() (out []string) {
		evs, err := List(bustest.Context(t), b, Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range slices.Backward(evs) {
			out = append(out, string(ev.Cursor))
		}
		return out
	}
	page := pageOf("a", "b", "c")
	page[1].Cursor = triggerd.Cursor("the event's own, which a half stored page must not leave behind")
	if _, err := NewAppender(b).AppendPage(bustest.Context(t), page, triggerd.Cursor("start"), triggerd.Cursor("next"), bus.Fence{}); err != nil {
		t.Fatal(err)
	}
	if got := positions(); !slices.Equal(got, []string{"start", "start", "next"}) {
		t.Fatalf("positions %q", got)
	}
	if _, err := NewAppender(b).AppendPage(bustest.Context(t), pageOf("d", "e"), triggerd.Cursor("next"), nil, bus.Fence{}); err != nil {
		t.Fatal(err)
	}
	if got := positions(); !slices.Equal(got, []string{"start", "start", "next", "next", "next"}) {
		t.Fatalf("positions %q: a page without a new one leaves it where it was", got)
	}
}

func TestAppendPageOfMoreThanABatch(t *testing.T) {
	b := bustest.Open(t)
	ids := make([]string, 2*maxPage+500)
	for i := range ids {
		ids[i] = fmt.Sprint("n", i)
	}
	mustAppend(t, b, testEvent("github", "n1500"), bus.Fence{})
	rs, err := NewAppender(b).AppendPage(bustest.Context(t), pageOf(ids...), triggerd.Cursor("start"), triggerd.Cursor("next"), bus.Fence{})
	if err != nil || len(rs) != len(ids) {
		t.Fatalf("%d receipts, %v", len(rs), err)
	}
	last := uint64(0)
	for i, r := range rs {
		if i == 1500 {
			if !r.Duplicate {
				t.Errorf("n1500: %+v", r)
			}
			continue
		}
		if r.Duplicate || r.Seq <= last {
			t.Fatalf("receipt %d: %+v after %d", i, r, last)
		}
		last = r.Seq
	}
	evs, err := List(bustest.Context(t), b, Query{Match: func(ev *triggerd.Event) bool { return string(ev.Cursor) == "next" }})
	if err != nil || len(evs) != 1 || evs[0].ID != ids[len(ids)-1] {
		t.Fatalf("the new position is on %d events: %v", len(evs), err)
	}
}

func TestAPageWhoseAnswerWasLostIsOurs(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	a := NewAppender(b)
	fence := acquire(t, b, "github")
	prepare := func(ids ...string) []*nats.Msg {
		var msgs []*nats.Msg
		for _, ev := range pageOf(ids...) {
			m, err := a.prepare(ctx, &ev, fence)
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, m)
		}
		return msgs
	}
	msgs := prepare("a", "b", "c")
	last, err := a.commit(ctx, msgs, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	stays := func(t *testing.T) {
		t.Helper()
		receipts := make([]triggerd.Receipt, 3)
		if err := a.commitAll(ctx, msgs, receipts, fence); err != nil || !slices.Equal(receipts, []triggerd.Receipt{{Seq: last - 2}, {Seq: last - 1}, {Seq: last}}) {
			t.Fatalf("again: %+v, %v", receipts, err)
		}
	}
	t.Run("sent again", stays)
	acquire(t, b, "github")
	t.Run("sent again after a takeover", stays)
}

// All or nothing: with the fence lost in the middle, none of the page is there.
func TestAFencedPageLeavesNothing(t *testing.T) {
	b := bustest.Open(t)
	old := acquire(t, b, "github")
	acquire(t, b, "github")
	if _, err := NewAppender(b).AppendPage(bustest.Context(t), pageOf("a", "b", "c"), nil, nil, old); err == nil {
		t.Fatal("the page was stored")
	}
	if got := order(t, b, "github"); len(got) != 0 {
		t.Fatalf("stored: %v", got)
	}
}
