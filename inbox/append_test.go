package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestAppendStoresAnIDOnce(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	ev := testEvent("github", "a")
	first := mustAppend(t, b, ev, bus.Fence{})
	if first.Duplicate || first.Seq == 0 {
		t.Fatalf("first: %+v", first)
	}
	again := ev
	again.Payload, again.Type = []byte("other"), "other"
	duplicate := func(t *testing.T) {
		t.Helper()
		for range 5 {
			if r := mustAppend(t, b, again, bus.Fence{}); r != (triggerd.Receipt{Duplicate: true}) {
				t.Fatalf("again: %+v", r)
			}
		}
		got, err := Get(bustest.Context(t), b, first.Seq)
		if err != nil || !bytes.Equal(got.Payload, ev.Payload) {
			t.Fatalf("stored: %+v, %v", got, err)
		}
	}
	t.Run("at once", duplicate)
	t.Run("after the stream's duplicate window", func(t *testing.T) {
		<-time.After(2 * b.Events.CachedInfo().Config.Duplicates)
		duplicate(t)
	})
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	t.Run("after a restart", duplicate)
	t.Run("the same id of another connection or subscription is another event", func(t *testing.T) {
		other, sub := ev, ev
		other.Connection, sub.Subscription = "gitlab", "s1"
		for _, ev := range []triggerd.Event{other, sub} {
			if r := mustAppend(t, b, ev, bus.Fence{}); r.Duplicate {
				t.Fatalf("%s/%s: %+v", ev.Connection, ev.Subscription, r)
			}
		}
	})
}

func TestAppendAtTheSameTime(t *testing.T) {
	b := bustest.Open(t, bustest.Sync(bus.SyncGroup))
	a := NewAppender(b)
	ctx := bustest.Context(t)
	const ids, writers = 20, 16
	results := make(chan error, ids*writers)
	stored := make(chan string, ids*writers)
	for i := range ids {
		for range writers {
			go func() {
				id := fmt.Sprint("n", i)
				r, err := a.Append(ctx, testEvent("github", id), bus.Fence{})
				if err == nil && !r.Duplicate {
					stored <- id
				}
				results <- err
			}()
		}
	}
	for range ids * writers {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	close(stored)
	seen := map[string]int{}
	for id := range stored {
		seen[id]++
	}
	if len(seen) != ids {
		t.Fatalf("%d ids stored, want %d", len(seen), ids)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d appends say that they stored it", id, n)
		}
	}
}

func TestAppendCarriesThePosition(t *testing.T) {
	b := bustest.Open(t)
	fence := acquire(t, b, "github")
	ev := testEvent("github", "a")
	ev.Cursor = triggerd.Cursor("after a")
	mustAppend(t, b, ev, fence)
	m, err := b.Last(bustest.Context(t), b.Events, b.Names.EventsOf("github"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := bus.CursorOf(m.Header); err != nil || string(c) != "after a" {
		t.Fatalf("position: %q, %v", c, err)
	}
}

func TestAppendAfterATakeover(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	a := NewAppender(b)
	old := acquire(t, b, "github")
	mustAppend(t, b, testEvent("github", "before"), old)
	sent, err := a.prepare(ctx, ptr(testEvent("github", "sent")), old)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := b.Publish(ctx, sent)
	if err != nil {
		t.Fatal(err)
	}
	fresh := acquire(t, b, "github")

	t.Run("the former owner is fenced", func(t *testing.T) {
		if _, err := a.Append(ctx, testEvent("github", "late"), old); !errors.Is(err, triggerd.ErrFenced) {
			t.Fatalf("append: %v", err)
		}
		page := []triggerd.Event{testEvent("github", "late1"), testEvent("github", "late2")}
		if _, err := a.AppendPage(ctx, page, nil, nil, old); !errors.Is(err, triggerd.ErrFenced) {
			t.Fatalf("append page: %v", err)
		}
	})
	t.Run("what it stored before counts as stored", func(t *testing.T) {
		// Its answer was lost, so it sends it again.
		if r, err := a.publish(ctx, sent, old, false); err != nil || r != (triggerd.Receipt{Seq: seq}) {
			t.Fatalf("append: %+v, %v", r, err)
		}
		if r, err := a.Append(ctx, testEvent("github", "before"), old); err != nil || !r.Duplicate {
			t.Fatalf("append: %+v, %v", r, err)
		}
	})
	t.Run("the new owner goes on", func(t *testing.T) {
		mustAppend(t, b, testEvent("github", "late"), fresh)
	})
	t.Run("a fence that was never written", func(t *testing.T) {
		if _, err := a.Append(ctx, testEvent("gitlab", "a"), bus.Fence{Subject: b.Names.Owner("gitlab"), Seq: 5}); !errors.Is(err, triggerd.ErrFenced) {
			t.Fatalf("append: %v", err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func TestAnAppendWhoseAnswerWasLostIsNotADuplicate(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	a := NewAppender(b)
	for name, fence := range map[string]bus.Fence{"without a fence": {}, "with a fence": acquire(t, b, "github")} {
		t.Run(name, func(t *testing.T) {
			m, err := a.prepare(ctx, ptr(testEvent("github", name)), fence)
			if err != nil {
				t.Fatal(err)
			}
			seq, err := b.Publish(ctx, m) // stored; then the answer is lost
			if err != nil {
				t.Fatal(err)
			}
			if r, err := a.publish(ctx, m, fence, false); err != nil || r != (triggerd.Receipt{Seq: seq}) {
				t.Fatalf("our own retry: %+v, %v", r, err)
			}
			other, err := a.prepare(ctx, ptr(testEvent("github", name)), fence)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := a.publish(ctx, other, fence, false); err != nil || !r.Duplicate {
				t.Fatalf("somebody else's retry: %+v, %v", r, err)
			}
		})
	}
}

func TestPayloadsComeBackByteForByte(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir), func(o *bus.Options) { o.Embedded.MaxPayload = 2 << 20 })
	inline := b.InlineMax()
	type stored struct {
		seq     uint64
		payload []byte
	}
	var all []stored
	for _, size := range []int{0, inline, inline + 1, 1<<20 - 1, 1<<20 + 1, 8 << 20} {
		ev := testEvent("github", fmt.Sprint("size", size))
		ev.Payload = make([]byte, size)
		rand.New(rand.NewSource(int64(size))).Read(ev.Payload) // invalid UTF-8 and NULs
		all = append(all, stored{mustAppend(t, b, ev, bus.Fence{}).Seq, ev.Payload})
	}
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	for _, s := range all {
		ev, err := Get(bustest.Context(t), b, s.seq)
		if err != nil || !bytes.Equal(ev.Payload, s.payload) || ev.Size() != int64(len(s.payload)) || ev.Large != 0 {
			t.Errorf("%d bytes came back as %d (Size %d): %v", len(s.payload), len(ev.Payload), ev.Size(), err)
		}
	}
	listed, err := List(bustest.Context(t), b, Query{Connection: "github"})
	if err != nil || len(listed) != len(all) || listed[0].Payload != nil || listed[0].Size() != 8<<20 {
		t.Fatalf("a list loads no blobs, and tells their size: %d, %v", len(listed), err)
	}
	t.Run("a large duplicate leaves no blob behind", func(t *testing.T) {
		sweep := func() bus.Sweep {
			res, err := b.SweepBlobs(bustest.Context(t), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		before := sweep()
		ev := testEvent("github", fmt.Sprint("size", 8<<20))
		ev.Payload = make([]byte, 1<<20)
		if r := mustAppend(t, b, ev, bus.Fence{}); !r.Duplicate {
			t.Fatalf("append: %+v", r)
		}
		rs, err := NewAppender(b).AppendPage(bustest.Context(t), []triggerd.Event{ev, ev, testEvent("github", "new"), testEvent("github", "newer")}, nil, nil, bus.Fence{})
		if err != nil || !rs[0].Duplicate || !rs[1].Duplicate || rs[2].Duplicate {
			t.Fatalf("page: %+v, %v", rs, err)
		}
		if after := sweep(); after != before {
			t.Fatalf("blobs before %+v, after %+v", before, after)
		}
	})
}

func TestAppendRefuses(t *testing.T) {
	b := bustest.Open(t)
	a := NewAppender(b)
	ctx := bustest.Context(t)
	for name, tc := range map[string]struct {
		change func(*triggerd.Event)
		want   error
	}{
		"an invalid event":            {func(e *triggerd.Event) { e.ID = "" }, triggerd.ErrInvalidEvent},
		"a loop":                      {func(e *triggerd.Event) { e.Hops = triggerd.MaxHops + 1 }, triggerd.ErrLoop},
		"headers over the limit":      {func(e *triggerd.Event) { e.Headers = map[string]string{"a": strings.Repeat("x", 64<<10)} }, triggerd.ErrTooLarge},
		"a position over the limit":   {func(e *triggerd.Event) { e.Cursor = make(triggerd.Cursor, 50<<10) }, triggerd.ErrTooLarge},
		"a subscription that is none": {func(e *triggerd.Event) { e.Subscription = ">" }, triggerd.ErrInvalidEvent},
	} {
		t.Run(name, func(t *testing.T) {
			ev := testEvent("github", "a")
			tc.change(&ev)
			if _, err := a.Append(ctx, ev, bus.Fence{}); !errors.Is(err, tc.want) {
				t.Fatalf("append: %v, want %v", err, tc.want)
			}
			if _, err := a.AppendPage(ctx, []triggerd.Event{testEvent("github", "b"), ev}, nil, ev.Cursor, bus.Fence{}); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "event 1") {
				t.Fatalf("append page: %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("as much as fits", func(t *testing.T) {
		ev := testEvent("github", "fits")
		ev.Headers = map[string]string{"a": strings.Repeat("x", 30<<10)}
		ev.Cursor = make(triggerd.Cursor, 20<<10)
		mustAppend(t, b, ev, acquire(t, b, "github"))
		ev.ID = "fits too"
		if _, err := a.AppendPage(ctx, []triggerd.Event{testEvent("github", "c"), ev}, nil, nil, acquire(t, b, "github")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("everything while the store is full", func(t *testing.T) {
		b.RefuseEvents("test", "the disk is full")
		defer b.RefuseEvents("test", "")
		if _, err := a.Append(ctx, testEvent("github", "d"), bus.Fence{}); !errors.Is(err, triggerd.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") {
			t.Fatalf("append: %v", err)
		}
	})
	t.Run("everything once the store is gone, in the time it is given", func(t *testing.T) {
		b.Close()
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := a.Append(ctx, testEvent("github", "e"), bus.Fence{}); !errors.Is(err, triggerd.ErrUnavailable) {
			t.Fatalf("append: %v", err)
		}
		page := []triggerd.Event{testEvent("github", "f"), testEvent("github", "g")}
		if _, err := a.AppendPage(ctx, page, nil, nil, bus.Fence{}); !errors.Is(err, triggerd.ErrUnavailable) {
			t.Fatalf("append page: %v", err)
		}
	})
}
