package cron

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// minutes is an upstream in which the thing that happens is a minute going by.
type minutes struct{ slots []time.Time }

func (u *minutes) Source(t *testing.T) sources.Source {
	return &Source{Schedule: mustParse(t, "* * * * *", time.UTC)}
}

func (u *minutes) Happen(_ *testing.T, _ int) {
	next := time.Now().Truncate(time.Minute).Add(time.Minute)
	u.slots = append(u.slots, next)
	time.Sleep(time.Until(next)) // fake time: this is what happens
	synctest.Wait()
}

func (u *minutes) Number(ev triggerd.Event) int {
	return 1 + slices.IndexFunc(u.slots, func(s time.Time) bool { return s.UTC().Format(time.RFC3339) == ev.ID })
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, sourcetest.Harness{
		New:         func(*testing.T) sourcetest.Upstream { return &minutes{} },
		FirstCursor: true,
		Bubble:      true,
	})
}

func mustParse(t *testing.T, expr string, loc *time.Location) Schedule {
	t.Helper()
	s, err := Parse(expr, Options{Zone: loc})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin runs a source over mem until the test ends or stop is called.
func begin(t *testing.T, mem *sourcetest.Memory, s *Source, log *bytes.Buffer) (status *sources.Status, stop func()) {
	t.Helper()
	rt := mem.Runtime()
	if log != nil {
		rt.Log = zerolog.New(log)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, rt) }()
	synctest.Wait()
	return rt.Status, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func ids(mem *sourcetest.Memory) []string {
	var out []string
	for _, ev := range mem.Events() {
		if ev.Type == TickType {
			out = append(out, ev.ID)
		}
	}
	return out
}

// payloads are those of the events of a type.
func payloads[T any](t *testing.T, mem *sourcetest.Memory, typ string) (out []T) {
	t.Helper()
	for _, ev := range mem.Events() {
		var p T
		if ev.Type != typ {
			continue
		}
		if err := json.Unmarshal(ev.Payload, &p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func ticks(t *testing.T, mem *sourcetest.Memory) []Tick {
	t.Helper()
	return payloads[Tick](t, mem, TickType)
}

// missed are the records of slots that did not fire.
func missed(t *testing.T, mem *sourcetest.Memory) []Missed {
	t.Helper()
	return payloads[Missed](t, mem, MissedType)
}

// The bubble of synctest begins at midnight UTC on 1 January 2000, a Saturday.
func TestTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loc, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		mem := sourcetest.NewMemory("nightly")
		_, stop := begin(t, mem, &Source{Schedule: mustParse(t, "0 8 * * *", loc)}, nil)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		stop()

		ev := mem.Events()[1]
		if ev.ID != "2000-01-02T13:00:00Z" || ev.Type != "tick" || !ev.Time.Equal(time.Date(2000, 1, 2, 13, 0, 0, 0, time.UTC)) {
			t.Errorf("event %q of type %q at %v", ev.ID, ev.Type, ev.Time)
		}
		if string(ev.Cursor) != "2000-01-02T13:00:00Z America/New_York 0 8 * * *" {
			t.Errorf("cursor %q", ev.Cursor)
		}
		first, second := ticks(t, mem)[0], ticks(t, mem)[1]
		if first.Previous != nil {
			t.Errorf("the first tick ever names %v before it", first.Previous)
		}
		if second.Local != "2000-01-02T08:00:00-05:00" || !second.Previous.Equal(first.Scheduled) ||
			!second.Next.Equal(time.Date(2000, 1, 3, 13, 0, 0, 0, time.UTC)) || second.CatchUp || second.LateByMS != 0 ||
			second.Schedule != "0 8 * * *" || second.Timezone != "America/New_York" {
			t.Errorf("tick %+v", second)
		}
	})
}

func TestFirstStart(t *testing.T) {
	t.Run("stores a position and fires nothing of the past", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			_, stop := begin(t, mem, &Source{Schedule: mustParse(t, "* * * * *", time.UTC)}, nil)
			defer stop()
			if len(mem.Events()) != 0 || !strings.HasPrefix(string(mem.Cursor()), "2000-01-01T00:00:00Z ") {
				t.Errorf("events %v, cursor %q", ids(mem), mem.Cursor())
			}
		})
	})
	t.Run("a position that is stored late still counts from the start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.FailNext(1, triggerd.ErrUnavailable)
			_, stop := begin(t, mem, &Source{Schedule: mustParse(t, "* * * * *", time.UTC)}, nil)
			defer stop()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := ids(mem); !slices.Equal(got, []string{"2000-01-01T00:01:00Z"}) {
				t.Errorf("fired %v", got)
			}
		})
	})
}

func TestCatchUp(t *testing.T) {
	const expr = "*/10 * * * *"
	at := func(s string) []byte { return []byte(s + " UTC " + expr) }
	tests := []struct {
		name    string
		cursor  []byte
		catchUp CatchUp
		want    []string // before the first regular slot
		cursorT string   // position after the start
		log     string
	}{
		{"latest fires the newest missed slot", at("1999-12-31T23:00:00Z"), CatchUpLatest,
			[]string{"2000-01-01T00:00:00Z"}, "2000-01-01T00:00:00Z", `"missed":5`},
		{"none fires nothing", at("1999-12-31T23:00:00Z"), CatchUpNone,
			nil, "2000-01-01T00:00:00Z", `"missed":6`},
		{"nothing missed", at("2000-01-01T00:00:00Z"), CatchUpLatest,
			nil, "2000-01-01T00:00:00Z", ""},
		{"years of down-time fire one slot", at("1980-01-01T00:00:00Z"), CatchUpLatest,
			[]string{"2000-01-01T00:00:00Z"}, "2000-01-01T00:00:00Z", `"beyond_window":true`},
		{"a cursor that is a bare time counts", []byte("1999-12-31T23:00:00Z"), "",
			[]string{"2000-01-01T00:00:00Z"}, "2000-01-01T00:00:00Z", `"missed":5`},
		{"a changed schedule starts from now", []byte("1999-12-31T23:00:00Z UTC */5 * * * *"), CatchUpLatest,
			nil, "2000-01-01T00:05:00Z", "schedule changed"},
		{"a changed zone starts from now", []byte("1999-12-31T23:00:00Z Asia/Tokyo " + expr), CatchUpLatest,
			nil, "2000-01-01T00:05:00Z", "schedule changed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(5 * time.Minute) // the last slot is five minutes ago
				mem := sourcetest.NewMemory("c")
				mem.SetCursor(tt.cursor)
				var log bytes.Buffer
				_, stop := begin(t, mem, &Source{Schedule: mustParse(t, expr, time.UTC), CatchUp: tt.catchUp}, &log)
				if got := ids(mem); !slices.Equal(got, tt.want) {
					t.Errorf("fired %v, want %v", got, tt.want)
				}
				for _, tick := range ticks(t, mem) {
					if !tick.CatchUp {
						t.Errorf("tick %v does not say that it is caught up", tick.Scheduled)
					}
				}
				if slot, _, _ := strings.Cut(string(mem.Cursor()), " "); slot != tt.cursorT {
					t.Errorf("position %q, want %q", slot, tt.cursorT)
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				stop()
				if got, want := ids(mem), append(tt.want, "2000-01-01T00:10:00Z"); !slices.Equal(got, want) {
					t.Errorf("five minutes later fired %v, want %v", got, want)
				}
				if !strings.Contains(log.String(), tt.log) {
					t.Errorf("log %q does not hold %q", log.String(), tt.log)
				}
			})
		})
	}
	t.Run("a slot older than the window is not caught up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.SetCursor([]byte("1999-12-30T12:00:00Z UTC 0 12 * * *"))
			_, stop := begin(t, mem, &Source{Schedule: mustParse(t, "0 12 * * *", time.UTC), Window: time.Hour}, nil)
			calls := mem.Calls()
			time.Sleep(12 * time.Hour)
			synctest.Wait()
			stop()
			if got := ids(mem); !slices.Equal(got, []string{"2000-01-01T12:00:00Z"}) {
				t.Errorf("fired %v", got)
			}
			if calls != 1 {
				t.Errorf("the start took %d calls of the store, want 1", calls)
			}
		})
	})
	t.Run("an unreadable cursor is a gap and starts from now", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.SetCursor([]byte("rubbish"))
			_, stop := begin(t, mem, &Source{Schedule: mustParse(t, "* * * * *", time.UTC)}, nil)
			stop()
			if evs := mem.Events(); len(evs) != 1 || evs[0].Type != sources.GapType || !strings.HasPrefix(string(mem.Cursor()), "2000-01-01T00:00:00Z ") {
				t.Errorf("events %+v, cursor %q", evs, mem.Cursor())
			}
		})
	})
}

// newRun is a source in mid-life, for clocks that a bubble cannot step.
func newRun(t *testing.T, expr string, last time.Time, catchUp CatchUp) (*run, *sourcetest.Memory) {
	mem := sourcetest.NewMemory("c")
	rt := mem.Runtime()
	return &run{
		Source: &Source{Schedule: mustParse(t, expr, time.UTC), CatchUp: catchUp},
		rt:     rt, emit: sources.Persistent(rt), last: last,
	}, mem
}

func TestClock(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	step := func(t *testing.T, r *run, now time.Time) time.Duration {
		t.Helper()
		wait, err := r.step(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	t.Run("is read again after 30 s at most", func(t *testing.T) {
		r, _ := newRun(t, "0 * * * *", noon, "")
		if wait := step(t, r, noon.Add(time.Minute)); wait != 30*time.Second {
			t.Errorf("waits %v", wait)
		}
		if wait := step(t, r, noon.Add(time.Hour-time.Second)); wait != time.Second {
			t.Errorf("just before a slot it waits %v", wait)
		}
	})
	t.Run("set back repeats no slot and says so", func(t *testing.T) {
		r, mem := newRun(t, "* * * * *", noon, "")
		for m := -120; m <= 0; m++ {
			step(t, r, noon.Add(time.Duration(m)*time.Minute))
			if bad := r.rt.Status.Snapshot().Error != ""; bad != (m < 0) {
				t.Fatalf("%d minutes: status %+v", m, r.rt.Status.Snapshot())
			}
		}
		if len(mem.Events()) != 0 {
			t.Errorf("fired %v again", ids(mem))
		}
		step(t, r, noon.Add(time.Minute))
		if got := ids(mem); !slices.Equal(got, []string{"2026-11-30T12:01:00Z"}) {
			t.Errorf("fired %v", got)
		}
	})
	for _, rule := range []CatchUp{CatchUpLatest, CatchUpNone} {
		t.Run("a stall loses no slot under "+string(rule), func(t *testing.T) {
			r, mem := newRun(t, "@every 10s", noon, rule)
			step(t, r, noon.Add(55*time.Second))
			if got := ids(mem); len(got) != 5 || got[0] != "2026-11-30T12:00:10Z" || got[4] != "2026-11-30T12:00:50Z" {
				t.Errorf("fired %v", got)
			}
			if wait := step(t, r, noon.Add(55*time.Second)); wait != 5*time.Second {
				t.Errorf("then waits %v", wait)
			}
		})
	}
	t.Run("a long sleep follows the rule", func(t *testing.T) {
		for rule, want := range map[CatchUp][]string{CatchUpLatest: {"2026-11-30T16:00:00Z"}, CatchUpNone: nil} {
			r, mem := newRun(t, "0 * * * *", noon, rule)
			step(t, r, noon.Add(4*time.Hour+30*time.Minute))
			if got := ids(mem); !slices.Equal(got, want) {
				t.Errorf("%s fired %v, want %v", rule, got, want)
			}
		}
	})
}

func TestFencedTickEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := sourcetest.NewMemory("c")
		mem.SetCursor([]byte("1999-12-31T23:00:00Z"))
		mem.Fence()
		s := &Source{Schedule: mustParse(t, "* * * * *", time.UTC)}
		if err := s.Run(t.Context(), mem.Runtime()); !errors.Is(err, triggerd.ErrFenced) {
			t.Errorf("Run: %v", err)
		}
	})
}
