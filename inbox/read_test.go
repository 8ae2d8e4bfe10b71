package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestListPagesBackwards(t *testing.T) {
	b := bustest.Open(t)
	if evs, err := List(bustest.Context(t), b, Query{}); err != nil || evs != nil {
		t.Fatalf("an empty store: %v, %v", evs, err)
	}
	acquire(t, b, "github")
	for i := range 3 { // interleaved, over several windows and requests
		page := make([]triggerd.Event, 700)
		for j := range page {
			page[j] = testEvent([]string{"github", "gitlab"}[j%2], fmt.Sprint("n", i*700+j))
		}
		if _, err := NewAppender(b).AppendPage(bustest.Context(t), page, nil, nil, bus.Fence{}); err != nil {
			t.Fatal(err)
		}
	}
	want := ns(2100)
	slices.Reverse(want)
	for _, limit := range []int{0, 7, 500} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			var got []string
			q := Query{Limit: limit}
			for pages := 0; pages < 10; pages++ {
				evs, err := List(bustest.Context(t), b, q)
				if err != nil {
					t.Fatal(err)
				}
				if limit > 0 && len(evs) > limit {
					t.Fatalf("%d events", len(evs))
				}
				for _, ev := range evs {
					got = append(got, ev.ID)
				}
				if len(evs) == 0 || limit == 0 {
					break
				}
				q.Before = evs[len(evs)-1].Seq
			}
			if !slices.Equal(got, want[:len(got)]) || len(got) < min(2100, 10*max(limit, 1)) {
				t.Fatalf("%d events", len(got))
			}
		})
	}
	t.Run("of one connection", func(t *testing.T) {
		evs, err := List(bustest.Context(t), b, Query{Connection: "gitlab", Limit: 3})
		if err != nil || len(evs) != 3 || evs[0].ID != "n2099" || evs[2].ID != "n2095" || evs[0].Connection != "gitlab" || evs[0].Seq == 0 {
			t.Fatalf("%+v, %v", evs, err)
		}
	})
	t.Run("that match", func(t *testing.T) {
		evs, err := List(bustest.Context(t), b, Query{Limit: 2, Match: func(ev *triggerd.Event) bool { return strings.HasSuffix(ev.ID, "7") }})
		if err != nil || len(evs) != 2 || evs[0].ID != "n2097" || evs[1].ID != "n2087" {
			t.Fatalf("%+v, %v", evs, err)
		}
	})
	t.Run("over what was pruned", func(t *testing.T) {
		prune(t, pruner(b), old(), map[string]uint64{"github": 2000, "gitlab": 50})
		evs, err := List(bustest.Context(t), b, Query{})
		if err != nil || len(evs) != 1025+51 {
			t.Fatalf("%d events, %v", len(evs), err)
		}
	})
}

func TestGet(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	fence := acquire(t, b, "github")
	r := mustAppend(t, b, testEvent("github", "a"), fence)
	if ev, err := Get(ctx, b, r.Seq); err != nil || ev.ID != "a" || ev.Seq != r.Seq {
		t.Fatalf("%+v, %v", ev, err)
	}
	for _, seq := range []uint64{0, fence.Seq, r.Seq + 1} {
		if _, err := Get(ctx, b, seq); !errors.Is(err, triggerd.ErrNotFound) {
			t.Errorf("sequence %d: %v", seq, err)
		}
	}
	junk := nats.NewMsg(b.Names.Event("github", "0", "junk"))
	seq, err := b.Publish(ctx, junk)
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := Get(ctx, b, seq); err == nil {
		t.Errorf("junk is read as %+v", ev)
	}
}

func TestFind(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	seqs := map[string]uint64{}
	for _, ref := range []string{"github/push-1", "github/push-2", "gitlab/push-1", "github/repo/issues/7", "github/2", "drop/in/a.csv", "github/0aef", "github/0aef99", "github/4711",
		"github/few", "github/few1", "github/few2", "github/few3", "github/few4", "github/few5", "github/few6", "github/few7",
		"github/0af0", "drop/0af0", "drop/0af01", "drop/0af02", "drop/0af03", "drop/0af04", "drop/0af05", "drop/0af06", "drop/0af07"} {
		c, id, _ := strings.Cut(ref, "/")
		seqs[ref] = mustAppend(t, b, testEvent(c, id), bus.Fence{}).Seq
	}
	for _, tc := range []struct{ name, ref, want string }{
		{"by sequence", "1", "github/push-1"},
		{"a number that is a sequence is not an id", "2", "github/push-2"},
		{"by connection and id", "gitlab/push-1", "gitlab/push-1"},
		{"by connection and an id that is a number", "github/2", "github/2"},
		{"by id", "push-2", "github/push-2"},
		{"by an id with slashes", "repo/issues/7", "github/repo/issues/7"},
		{"by connection and an id with slashes", "github/repo/issues/7", "github/repo/issues/7"},
		{"by a path whose first part looks like a connection", "in/a.csv", "drop/in/a.csv"},
		{"by a prefix of the id", "repo/iss", "github/repo/issues/7"},
		{"by a prefix of connection and id", "gitlab/pu", "gitlab/push-1"},
		{"a whole id wins over a longer one", "0aef", "github/0aef"},
		{"by a prefix that begins with digits", "0aef9", "github/0aef99"},
		{"a number beyond the last sequence is an id", "4711", "github/4711"},
		{"a whole id wins over many longer ones", "few", "github/few"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ev, err := Find(ctx, b, tc.ref)
			if err != nil || ev.Seq != seqs[tc.want] {
				t.Fatalf("%q is %s/%s (%d): %v", tc.ref, ev.Connection, ev.ID, ev.Seq, err)
			}
		})
	}
	for _, tc := range []struct {
		name, ref string
		want      error
		lists     []string
	}{
		{"two of the same id, though a prefix of others, too", "0af0", triggerd.ErrConflict, []string{"github/0af0 (", "drop/0af0 ("}},
		{"two of the same id", "push-1", triggerd.ErrConflict, []string{"github/push-1", "gitlab/push-1"}},
		{"a prefix of several", "push", triggerd.ErrConflict, []string{"github/push-1", "github/push-2", "gitlab/push-1"}},
		{"nothing", "nothing", triggerd.ErrNotFound, []string{"nothing"}},
		{"nothing of that connection", "gitlab/push-2", triggerd.ErrNotFound, nil},
		{"a sequence that is not there", "999", triggerd.ErrNotFound, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ev, err := Find(ctx, b, tc.ref)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%q is %s/%s: %v", tc.ref, ev.Connection, ev.ID, err)
			}
			for _, l := range tc.lists {
				if !strings.Contains(err.Error(), l) {
					t.Errorf("%v does not name %s", err, l)
				}
			}
		})
	}
	t.Run("the payload is loaded", func(t *testing.T) {
		large := testEvent("github", "large")
		large.Payload = make([]byte, 1<<20)
		mustAppend(t, b, large, bus.Fence{})
		for _, ref := range []string{"github/large", "large", "larg"} {
			if ev, err := Find(ctx, b, ref); err != nil || len(ev.Payload) != 1<<20 {
				t.Errorf("%s: %d bytes, %v", ref, len(ev.Payload), err)
			}
		}
	})
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	b := bustest.Open(t)
	b.Close()
	ctx := bustest.Context(t)
	if _, err := List(ctx, b, Query{}); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
	if _, err := Get(ctx, b, 1); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	if _, err := Find(ctx, b, "1"); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("find: %v", err)
	}
}
