package cron

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseErrorsNameTheProblem(t *testing.T) {
	for expr, want := range map[string]string{
		"":                             "empty",
		"  ":                           "empty",
		"TZ=UTC":                       "timezone",
		"CRON_TZ=UTC 0 0 * * *":        "timezone",
		"0 0 0 * * *":                  "seconds",
		"0 0 * *":                      "found 4",
		"0 0 30 2 *":                   "never fire",
		"0 0 31 4,6,9,11 *":            "never fire",
		"61 * * * *":                   "minute",
		"* 24 * * *":                   "hour",
		"* * 0 * *":                    "day of month",
		"* * * 13 *":                   "month",
		"* * * * 8":                    "day of week",
		"* * * * fri-mon":              "backwards",
		"*/60 * * * *":                 "step",
		"+5 * * * *":                   "not a number",
		"@fortnightly":                 "descriptor",
		"@every":                       "duration",
		"@every1h":                     "duration",
		"@every 500ms":                 "whole seconds",
		"@every -5m":                   "whole seconds",
		"@every 20000h":                "whole seconds",
		"? * * * *":                    "minute",
		"0 0 99999999999999999999 * *": "out of range",
	} {
		if _, err := Parse(expr, Options{Zone: time.UTC}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", expr, err, want)
		}
	}
	if _, err := Parse("* * * * *", Options{}); err == nil {
		t.Error("a schedule without a zone was accepted")
	}
}

func TestNext(t *testing.T) {
	tests := []struct{ expr, from, want string }{
		{"5/20 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"},
		{"5/20 * * * *", "2026-01-01T00:05:00Z", "2026-01-01T00:25:00Z"},
		{"0 9 * * fri-sun", "2026-11-30T00:00:00Z", "2026-12-04T09:00:00Z"},
		{"0 0 29 2 */7", "2026-01-01T00:00:00Z", "2032-02-29T00:00:00Z"}, // a Sunday: both day fields must match
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"* * * * *", "2026-01-01T00:00:59.999999999Z", "2026-01-01T00:01:00Z"},
		{"* * * * *", "2026-01-01T00:00:00.000000001Z", "2026-01-01T00:01:00Z"},
		{"@every 90s", "1970-01-01T00:00:00Z", "1970-01-01T00:01:30Z"},
		{"@every 7m", "2026-11-30T00:00:00Z", "2026-11-30T00:01:00Z"}, // that midnight is 4_276_182 * 7 min + 6 min
		{"@every 1h", "1969-12-31T22:30:00Z", "1969-12-31T23:00:00Z"},
	}
	for _, tt := range tests {
		from, err := time.Parse(time.RFC3339, tt.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustParse(t, tt.expr, time.UTC).Next(from).Format(time.RFC3339Nano); got != tt.want {
			t.Errorf("%q after %s is %s, want %s", tt.expr, tt.from, got, tt.want)
		}
	}
}

// Whatever the zone and the moment, slots lie ahead, are whole minutes of wall time or the end of a gap, and agree with a plain
// walk over every minute.
func TestNextAgainstAPlainWalk(t *testing.T) {
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin"}
	exprs := []string{"*/17 * * * *", "* */5 * * *", "*/9 2 * * *", "*/20 */3 * * 1-5"}
	rapid.Check(t, func(rt *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(rt, "zone"))
		if err != nil {
			rt.Fatal(err)
		}
		s, err := Parse(rapid.SampledFrom(exprs).Draw(rt, "expr"), Options{Zone: loc})
		if err != nil {
			rt.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_000_000_000, 2_500_000_000).Draw(rt, "at"), 0)
		got := s.Next(at)
		sp := s.(*spec)
		walk := at.Truncate(time.Minute).Add(time.Minute) // all these zones have whole-minute offsets
		for ; ; walk = walk.Add(time.Minute) {
			l := walk.In(loc)
			if sp.minute&(1<<l.Minute()) != 0 && sp.hour&(1<<l.Hour()) != 0 && sp.month&(1<<int(l.Month())) != 0 && sp.matchesDay(l) {
				break
			}
		}
		if !got.Equal(walk) {
			rt.Fatalf("%s in %s after %s: got %s, a walk finds %s", s, loc, at.In(loc), got, walk)
		}
	})
}

// Go's zone bounds end before their own stretch on 31 December of leap years beyond the zone table; a search must not stand still there.
func TestNextCrossesLeapYearsBeyondTheZoneTable(t *testing.T) {
	for _, zone := range []string{"America/New_York", "Australia/Sydney", "America/Santiago", "Pacific/Chatham"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		s := mustParse(t, "30 11 * * *", loc)
		at := time.Date(2039, 12, 1, 0, 0, 0, 0, loc)
		for day := 1; day <= 500; day++ {
			if at = s.Next(at); at.Day() != time.Date(2039, 12, day, 12, 0, 0, 0, loc).Day() || at.Hour() != 11 {
				t.Fatalf("%s day %d: %v", zone, day, at)
			}
		}
	}
}

func BenchmarkNext(b *testing.B) {
	loc, err := time.LoadLocation("America/New_York")
	if err != nil {
		b.Fatal(err)
	}
	s, err := Parse("30 2 * * 1-5", Options{Zone: loc})
	if err != nil {
		b.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, loc)
	for b.Loop() {
		s.Next(at)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/5 1-3 1,2 jan mon", "@every 5m", "@daily", "TZ=UTC", "0 0 30 2 *", "? ? ? ? ?", "1-/2 * * * *"} {
		f.Add(seed)
	}
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expr string) {
		s, err := Parse(expr, Options{Zone: time.UTC})
		if err != nil {
			return
		}
		if next := s.Next(from); !next.After(from) {
			t.Fatalf("%q was accepted and has no slot after %v (got %v)", expr, from, next)
		}
	})
}
