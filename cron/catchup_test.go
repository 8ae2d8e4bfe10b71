package cron

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

// P11: after down-time each slot fires or is recorded as missed, by the rule, once. There is a slot each ten minutes, the last one five minutes ago.
func TestEverySlotIsAccountedFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      Source
		down   time.Duration
		fired  int
		missed Missed // without the times when it is all of the rest
	}{
		{"none", Source{CatchUp: CatchUpNone}, 100 * time.Minute, 0, Missed{Slots: 10}},
		{"latest", Source{CatchUp: CatchUpLatest}, 100 * time.Minute, 1, Missed{Slots: 9}},
		{"latest, one missed", Source{}, 10 * time.Minute, 1, Missed{}},
		{"all", Source{CatchUp: CatchUpAll}, 100 * time.Minute, 10, Missed{}},
		{"all, more than the limit", Source{CatchUp: CatchUpAll, Limit: 3}, 100 * time.Minute, 3, Missed{Slots: 7}},
		{"all, more than the usual limit", Source{CatchUp: CatchUpAll}, 20 * time.Hour, LimitDefault, Missed{Slots: 20}},
		{"all, older than the window", Source{CatchUp: CatchUpAll, Window: 50 * time.Minute}, 100 * time.Minute, 5, Missed{Beyond: true}},
		{"none, older than the window", Source{CatchUp: CatchUpNone, Window: 50 * time.Minute}, 100 * time.Minute, 0, Missed{Slots: 5, Beyond: true}},
		{"all, older than the usual window", Source{CatchUp: CatchUpAll, Limit: 2000}, 48 * time.Hour, 24 * 6, Missed{Beyond: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counted := map[SlotState]int{}
				c.s.Count = func(state SlotState, n int) { counted[state] += n }
				c.s.Schedule = mustParse(t, "*/10 * * * *", time.UTC)
				newest := time.Now()
				time.Sleep(5 * time.Minute)
				mem := sourcetest.NewMemory("c")
				last := newest.Add(-c.down)
				mem.SetCursor([]byte(last.UTC().Format(time.RFC3339) + " UTC */10 * * * *"))
				_, stop := begin(t, mem, &c.s, nil)
				stop()
				_, stop = begin(t, mem, &c.s, nil) // a second start finds everything dealt with
				stop()
				fired := ticks(t, mem)
				if len(fired) != c.fired || counted[SlotLate] != c.fired || counted[SlotMissed] != c.missed.Slots || counted[SlotFired] != 0 {
					t.Errorf("%d fired, counted %v, want %d", len(fired), counted, c.fired)
				}
				for i, tick := range fired {
					if want := newest.Add(-time.Duration(len(fired)-1-i) * 10 * time.Minute); !tick.Scheduled.Equal(want) || !tick.CatchUp {
						t.Errorf("tick %d is %+v, want %s caught up", i, tick, want)
					}
				}
				var got []Missed
				for _, m := range missed(t, mem) {
					got = append(got, Missed{Slots: m.Slots, Beyond: m.Beyond})
					if from, to := last.Add(10*time.Minute), newest.Add(-time.Duration(c.fired)*10*time.Minute); !m.From.Equal(from) || to.Sub(m.To).Abs() >= 10*time.Minute {
						t.Errorf("missed from %s to %s, want from %s to about %s", m.From, m.To, from, to)
					}
				}
				var want []Missed
				if c.missed != (Missed{}) {
					want = []Missed{c.missed}
				}
				if !slices.Equal(got, want) {
					t.Errorf("missed %+v, want %+v", got, want)
				}
			})
		})
	}
}

// A slot that is less than a minute late was not missed: it fires under every rule, also after a restart or a takeover, and is no catch-up.
func TestGrace(t *testing.T) {
	for _, rule := range []CatchUp{CatchUpNone, CatchUpLatest, CatchUpAll} {
		synctest.Test(t, func(t *testing.T) {
			s := &Source{Schedule: mustParse(t, "@every 10s", time.UTC), CatchUp: rule}
			mem := sourcetest.NewMemory("c")
			_, stop := begin(t, mem, s, nil)
			stop()
			time.Sleep(45 * time.Second)
			_, stop = begin(t, mem, s, nil)
			stop()
			got := ticks(t, mem)
			if len(got) != 4 || len(missed(t, mem)) != 0 {
				t.Errorf("%s: fired %v, missed %v", rule, ids(mem), missed(t, mem))
			}
			for _, tick := range got {
				if tick.CatchUp {
					t.Errorf("%s: %+v", rule, tick)
				}
			}
		})
	}
}

// A slot's jitter is its own: the same in every daemon and after a restart, and no slot fires before its time or twice.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := func() *Source {
			return &Source{Schedule: mustParse(t, "* * * * *", time.UTC), Jitter: 50 * time.Second}
		}
		mem := sourcetest.NewMemory("c")
		start := time.Now()
		var at []time.Duration // when each slot fired, after its time
		for range 40 {         // restarts
			_, stop := begin(t, mem, s(), nil)
			for range 15 {
				time.Sleep(time.Second)
				synctest.Wait()
				for len(at) < len(ids(mem)) {
					at = append(at, time.Since(start.Add(time.Duration(len(at)+1)*time.Minute)))
				}
			}
			stop()
		}
		fired := ticks(t, mem)
		if len(fired) < 9 || len(at) != len(fired) {
			t.Fatalf("%d slots in ten minutes, seen %d", len(fired), len(at))
		}
		different := map[int64]bool{}
		r := &run{Source: s()}
		for i, tick := range fired {
			want := r.jitter(tick.Scheduled)
			different[tick.JitterMS] = true
			if !tick.Scheduled.Equal(start.Add(time.Duration(i+1)*time.Minute)) || tick.CatchUp || tick.JitterMS != want.Milliseconds() || want >= 50*time.Second {
				t.Errorf("tick %d: %+v, want a jitter of %s", i, tick, want)
			}
			if at[i] < want || at[i] > want+2*time.Second {
				t.Errorf("%s fired after %s, its jitter is %s", tick.Scheduled, at[i], want)
			}
		}
		if len(different) < 5 || len(missed(t, mem)) != 0 {
			t.Errorf("jitters %v, missed %+v", different, missed(t, mem))
		}
	})
}

// Instants fire once each; one that is added later fires, one that had passed at the first start does not.
func TestOneShotsFireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := sourcetest.NewMemory("c")
		now := time.Now()
		life := func(d time.Duration, after ...time.Duration) {
			var times []time.Time
			for _, a := range after {
				times = append(times, now.Add(a))
			}
			s, err := At(times, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			status, stop := begin(t, mem, &Source{Schedule: s}, nil)
			time.Sleep(d)
			synctest.Wait()
			if state := status.Snapshot().State; state != sources.Running {
				t.Errorf("it is %s", state)
			}
			stop()
		}
		life(2*time.Hour, -time.Hour, time.Hour)
		life(2*time.Hour, -time.Hour, time.Hour, 3*time.Hour)
		life(0, time.Hour, 3*time.Hour)
		if got, want := fmt.Sprint(ids(mem)), "[2000-01-01T01:00:00Z 2000-01-01T03:00:00Z]"; got != want {
			t.Errorf("fired %s, want %s", got, want)
		}
	})
}
