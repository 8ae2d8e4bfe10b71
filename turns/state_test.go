package turns

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryPolicyPause(t *testing.T) {
	p := RetryPolicy{Attempts: 10, Initial: 2 * time.Second, Max: 30 * time.Second}
	for _, c := range []struct {
		name    string
		p       RetryPolicy
		n       int
		floor   time.Duration
		min     time.Duration
		ceiling time.Duration
	}{
		{"first pause is at most the initial one", p, 1, 0, 1, 2 * time.Second},
		{"second is twice that", p, 2, 0, 1, 4 * time.Second},
		{"fourth is eight times that", p, 4, 0, 1, 16 * time.Second},
		{"never over the maximum", p, 9, 0, 1, 30 * time.Second},
		{"a floor is kept", p, 1, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		{"a floor may be over the maximum", p, 1, time.Minute, time.Minute, time.Minute},
		{"a floor below the ceiling leaves the jitter above it", p, 9, 10 * time.Second, 10 * time.Second, 30 * time.Second},
		{"a mad floor is bounded", p, 1, math.MaxInt64, LongestFloor, LongestFloor},
		{"a negative floor is none", p, 1, -time.Hour, 1, 2 * time.Second},
		{"initial over maximum", RetryPolicy{Initial: time.Minute, Max: time.Second}, 1, 0, 1, time.Second},
		{"no backoff at all", RetryPolicy{}, 3, 0, 0, 0},
		{"only a floor", RetryPolicy{}, 3, time.Second, time.Second, time.Second},
		{"doubling past what a duration holds", RetryPolicy{Initial: math.MaxInt64/2 + 7, Max: math.MaxInt64}, 1000, 0, 1, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 200 {
				if got := c.p.pause(c.n, c.floor); got < c.min || got > c.ceiling {
					t.Fatalf("pause %v, want between %v and %v", got, c.min, c.ceiling)
				}
			}
		})
	}
}

// The jitter is full: turns that failed together come back spread over the whole pause.
func TestRetryPolicyJitterIsFull(t *testing.T) {
	p := RetryPolicy{Initial: time.Second, Max: time.Minute}
	const draws = 4000
	var tenths [10]int
	for range draws {
		tenths[min(int(p.pause(3, 0)*10/(4*time.Second)), 9)]++
	}
	for i, n := range tenths {
		if n < draws/20 || n > draws/5 { // a tenth each, give or take far more than chance would
			t.Errorf("%d of %d pauses in tenth %d: %v", n, draws, i, tenths)
		}
	}
}

func TestRetryPolicyNext(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := RetryPolicy{Attempts: 3, Initial: time.Second, Max: time.Second, MaxElapsed: time.Minute}
	for _, c := range []struct {
		name  string
		n     int
		now   time.Time
		floor time.Duration
		over  string
	}{
		{"an attempt is left", 1, first, 0, ""},
		{"the last one failed", 3, first, 0, "no attempt left"},
		{"more than allowed, after a reload", 5, first, 0, "no attempt left"},
		{"within max_elapsed", 2, first.Add(50 * time.Second), 0, ""},
		{"the pause would end after max_elapsed", 2, first.Add(time.Minute), 0, "max_elapsed"},
		{"the floor would end after max_elapsed", 2, first, 2 * time.Minute, "max_elapsed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wait, over := p.next(c.n, first, c.now, c.floor)
			if over == "" != (c.over == "") || !strings.Contains(over, c.over) {
				t.Fatalf("over %q, want %q", over, c.over)
			}
			if over != "" && wait != 0 || over == "" && wait <= 0 {
				t.Fatalf("wait %v with %q", wait, over)
			}
		})
	}
	t.Run("without max_elapsed only attempts count", func(t *testing.T) {
		p := RetryPolicy{Attempts: 3, Initial: time.Second, Max: time.Second}
		if _, over := p.next(2, first, first.AddDate(1, 0, 0), 0); over != "" {
			t.Fatal(over)
		}
	})
	t.Run("a turn ends after exactly its attempts", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p := RetryPolicy{Attempts: rapid.IntRange(1, 50).Draw(t, "attempts"), Initial: time.Second, Max: time.Hour}
			n := 1
			for ; ; n++ {
				if _, over := p.next(n, first, first, 0); over != "" {
					break
				}
			}
			if n != p.Attempts {
				t.Fatalf("%d attempts, want %d", n, p.Attempts)
			}
		})
	})
}

func TestStates(t *testing.T) {
	for s, want := range map[State]struct{ final, lane, valid bool }{
		Queued: {false, true, true}, Running: {false, true, true}, Failed: {false, true, true},
		Held: {false, false, true}, Parked: {false, false, true},
		Done: {true, false, true}, Dead: {true, false, true}, Skipped: {true, false, true}, Cancelled: {true, false, true},
		"": {}, "waiting": {},
	} {
		if s.Final() != want.final || s.holdsLane() != want.lane || s.valid() != want.valid {
			t.Errorf("%q: final %v, holds its lane %v, valid %v", s, s.Final(), s.holdsLane(), s.valid())
		}
	}
}

func TestBackoffLeft(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct{ written, wake, want time.Time }{
		"in time":                     {now.Add(-time.Minute), now.Add(time.Minute), now.Add(time.Minute)},
		"over":                        {now.Add(-2 * time.Minute), now.Add(-time.Minute), now.Add(-time.Minute)},
		"the wall clock was set back": {now.AddDate(1, 0, 0), now.AddDate(1, 0, 0).Add(time.Minute), now.Add(time.Minute)},
		"the writer was ahead":        {now.Add(time.Hour), now.Add(time.Hour + time.Minute), now.Add(time.Minute)},
		"the writer was behind":       {now.Add(-time.Hour), now.Add(-59 * time.Minute), now.Add(-59 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoffLeft(&Entry{Time: c.written, NotBefore: &c.wake}, now); !got.Equal(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
