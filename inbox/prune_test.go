package inbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/cursor"
)

const week = 7 * 24 * time.Hour

// pruner prunes b; what it stores as positions goes through cursor, without a fence.
func pruner(b *bus.Bus) *Pruner {
	return &Pruner{Bus: b, MaxAge: week, Commit: func(ctx context.Context, connection, subscription string, c triggerd.Cursor) error {
		return cursor.Commit(ctx, b, connection, subscription, c, bus.Fence{})
	}}
}

func prune(t *testing.T, p *Pruner, now time.Time, floors map[string]uint64) {
	t.Helper()
	if paused, err := p.RunOnce(bustest.Context(t), now, floors); err != nil || paused {
		t.Fatalf("prune: paused %v, %v", paused, err)
	}
}

// old is a moment at which everything stored so far is older than the retention.
func old() time.Time { return time.Now().Add(week + time.Hour) }

func TestPruneByAge(t *testing.T) {
	b := bustest.Open(t)
	appendMany(t, b, "github", 10)
	appendMany(t, b, "gitlab", 10)
	for _, tc := range []struct {
		name           string
		now            time.Time
		floors         map[string]uint64
		github, gitlab int // events left
	}{
		{"young events stay", time.Now(), map[string]uint64{"github": 20, "gitlab": 20}, 10, 10},
		{"nothing is handled", old(), map[string]uint64{"github": 0, "gitlab": 0}, 10, 10},
		{"up to the floor of each", old(), map[string]uint64{"github": 3, "gitlab": 14}, 7, 6},
		{"again without effect", old(), map[string]uint64{"github": 3, "gitlab": 14}, 7, 6},
		{"a connection that is not named stays", old(), map[string]uint64{"gitlab": 15}, 7, 5},
		{"one that is configured no more holds nothing back", old(), map[string]uint64{"github": math.MaxUint64}, 0, 5},
		{"everything", old(), map[string]uint64{"github": 20, "gitlab": 20}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prune(t, pruner(b), tc.now, tc.floors)
			github, gitlab := order(t, b, "github"), order(t, b, "gitlab")
			if !slices.Equal(github, ns(10)[10-tc.github:]) || !slices.Equal(gitlab, ns(10)[10-tc.gitlab:]) {
				t.Fatalf("left of github %v, of gitlab %v", github, gitlab)
			}
		})
	}
	t.Run("the space comes back", func(t *testing.T) {
		info, err := b.Events.Info(bustest.Context(t))
		if err != nil || info.State.Bytes != 0 {
			t.Fatalf("%d bytes: %v", info.State.Bytes, err)
		}
	})
}

func TestPruneWithoutAnAgeKeepsEverything(t *testing.T) {
	b := bustest.Open(t)
	appendMany(t, b, "github", 3)
	p := pruner(b)
	p.MaxAge = 0
	prune(t, p, old(), map[string]uint64{"github": 3})
	if n := len(order(t, b, "github")); n != 3 {
		t.Fatalf("%d events are left", n)
	}
}

func TestPruneKeepsPositionsAndFences(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	fence := acquire(t, b, "mcp")
	for i := range 5 {
		for _, sub := range []string{"0", "s1", "s2"} {
			ev := testEvent("mcp", fmt.Sprint("n", i))
			ev.Subscription, ev.Cursor = sub, triggerd.Cursor(fmt.Sprint(sub, "@", i))
			mustAppend(t, b, ev, fence)
		}
	}
	last := mustAppend(t, b, testEvent("hooks", "a"), bus.Fence{}).Seq
	if err := cursor.Commit(ctx, b, "mcp", "s2", triggerd.Cursor("s2 moved"), fence); err != nil {
		t.Fatal(err)
	}
	prune(t, pruner(b), old(), map[string]uint64{"mcp": last, "hooks": last})
	if n := len(order(t, b, "mcp")) + len(order(t, b, "hooks")); n != 0 {
		t.Fatalf("%d events are left", n)
	}
	for sub, want := range map[string]string{"0": "0@4", "s1": "s1@4", "s2": "s2 moved"} {
		if c, err := cursor.Load(ctx, b, "mcp", sub); err != nil || string(c) != want {
			t.Errorf("position of %s: %q, want %q: %v", sub, c, want, err)
		}
	}
	if c, err := cursor.Load(ctx, b, "hooks", "0"); err != nil || c != nil {
		t.Errorf("position of a connection that has none: %q, %v", c, err)
	}
	mustAppend(t, b, testEvent("mcp", "the owner goes on"), fence)
	acquire(t, b, "mcp")
	if _, err := NewAppender(b).Append(ctx, testEvent("mcp", "the old owner"), fence); !errors.Is(err, triggerd.ErrFenced) {
		t.Fatalf("append with the old fence: %v", err)
	}
}

func TestPruneKeepsTheEventsWhenAPositionCannotBeKept(t *testing.T) {
	b := bustest.Open(t)
	ev := testEvent("github", "a")
	ev.Cursor = triggerd.Cursor("1")
	mustAppend(t, b, ev, bus.Fence{})
	p := pruner(b)
	p.Commit = func(context.Context, string, string, triggerd.Cursor) error { return triggerd.ErrFenced }
	if _, err := p.RunOnce(bustest.Context(t), old(), map[string]uint64{"github": 1}); !errors.Is(err, triggerd.ErrFenced) {
		t.Fatalf("prune: %v", err)
	}
	if n := len(order(t, b, "github")); n != 1 {
		t.Fatal("the event is gone, and its position with it")
	}
}

// big appends events of 10 KiB and returns the last sequence.
func big(t *testing.T, b *bus.Bus, connection, prefix string, n int) (last uint64) {
	t.Helper()
	page := make([]triggerd.Event, n)
	for i := range page {
		page[i] = testEvent(connection, fmt.Sprint(prefix, i))
		page[i].Payload = []byte(strings.Repeat("x", 10<<10))
	}
	rs, err := NewAppender(b).AppendPage(bustest.Context(t), page, nil, nil, bus.Fence{})
	if err != nil {
		t.Fatal(err)
	}
	return rs[n-1].Seq
}

func bytesStored(t *testing.T, b *bus.Bus) int64 {
	t.Helper()
	info, err := b.Events.Info(bustest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return int64(info.State.Bytes)
}

func TestPruneByBytes(t *testing.T) {
	budget := func(b *bus.Bus) *Pruner {
		p := pruner(b)
		p.MaxBytes = 1 << 20
		return p
	}
	t.Run("the oldest handled events go", func(t *testing.T) {
		b := bustest.Open(t)
		acquire(t, b, "github") // a fence at the beginning stays for ever; the events are far behind it
		last := big(t, b, "github", "early", 300)
		prune(t, pruner(b), old(), map[string]uint64{"github": last})
		last = big(t, b, "github", "n", 150)
		prune(t, budget(b), time.Now(), map[string]uint64{"github": last})
		if used := bytesStored(t, b); used > 1<<20 || used < 1<<19 {
			t.Fatalf("%d bytes are left", used)
		}
		if got := order(t, b, "github"); !slices.Equal(got, ns(150)[150-len(got):]) {
			t.Fatalf("left: %v", got)
		}
		if err := b.AcceptsEvents(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("one stuck connection does not keep the events of others", func(t *testing.T) {
		b := bustest.Open(t)
		big(t, b, "stuck", "s", 1)
		gone := big(t, b, "github", "early", 300)
		prune(t, pruner(b), old(), map[string]uint64{"github": gone})
		last := big(t, b, "github", "n", 150)
		prune(t, budget(b), time.Now(), map[string]uint64{"github": last, "stuck": 0})
		if used := bytesStored(t, b); used > 1<<20 {
			t.Fatalf("%d bytes are left", used)
		}
		if got := order(t, b, "stuck"); len(got) != 1 {
			t.Fatalf("left of the stuck one: %v", got)
		}
	})
	t.Run("unhandled ones stay, and new ones are refused until they are handled", func(t *testing.T) {
		b := bustest.Open(t)
		last := big(t, b, "github", "n", 150)
		p := budget(b)
		prune(t, p, time.Now(), map[string]uint64{"github": 0})
		if n := len(order(t, b, "github")); n != 150 {
			t.Fatalf("%d events are left", n)
		}
		_, err := NewAppender(b).Append(bustest.Context(t), testEvent("github", "new"), bus.Fence{})
		if !errors.Is(err, triggerd.ErrUnavailable) || !strings.Contains(err.Error(), "history.events_size") {
			t.Fatalf("append: %v", err)
		}
		prune(t, p, time.Now(), map[string]uint64{"github": last})
		mustAppend(t, b, testEvent("github", "new"), bus.Fence{})
	})
}

func TestClockStep(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		steps [][2]time.Duration // of the wall clock, and the time that really passed
		want  bool
	}{
		{"the first look", nil, false},
		{"steady", [][2]time.Duration{{time.Minute, time.Minute}, {time.Minute, time.Minute}}, false},
		{"a small correction", [][2]time.Duration{{5 * time.Minute, time.Minute}}, false},
		{"forwards", [][2]time.Duration{{time.Hour, time.Minute}}, true},
		{"backwards", [][2]time.Duration{{-time.Hour, time.Minute}}, true},
		{"59 minutes later", [][2]time.Duration{{time.Hour, time.Minute}, {59 * time.Minute, 59 * time.Minute}}, true},
		{"an hour later", [][2]time.Duration{{time.Hour, time.Minute}, {time.Hour, time.Hour}}, false},
		{"there and back", [][2]time.Duration{{time.Hour, time.Minute}, {-58 * time.Minute, time.Minute}, {30 * time.Minute, 30 * time.Minute}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c clock
			wall := at
			got := c.stepped(wall, 0)
			for _, s := range tc.steps {
				wall = wall.Add(s[0])
				got = c.stepped(wall, s[1])
			}
			if got != tc.want {
				t.Fatalf("stepped: %v", got)
			}
		})
	}
}

func TestPruneAfterAClockStep(t *testing.T) {
	b := bustest.Open(t)
	floors := map[string]uint64{"github": big(t, b, "github", "n", 150)}
	p := pruner(b)
	now := old()
	prune(t, p, now, nil)
	p.clock.wall = p.clock.wall.Add(-time.Hour) // as if it had jumped an hour ahead since
	for _, later := range []time.Duration{time.Second, 30 * time.Minute} {
		paused, err := p.RunOnce(bustest.Context(t), now.Add(later), floors)
		if n := len(order(t, b, "github")); err != nil || !paused || n != 150 {
			t.Fatalf("%v later: paused %v, %d events are left: %v", later, paused, n, err)
		}
	}
	p.MaxBytes = 1 << 20
	paused, err := p.RunOnce(bustest.Context(t), now.Add(31*time.Minute), floors)
	if used := bytesStored(t, b); err != nil || !paused || used > 1<<20 || used == 0 {
		t.Fatalf("the budget is kept even then: paused %v, %d bytes: %v", paused, used, err)
	}
	prune(t, p, now.Add(2*time.Hour), floors)
	if n := len(order(t, b, "github")); n != 0 {
		t.Fatalf("%d events are left when the pause is over", n)
	}
}
