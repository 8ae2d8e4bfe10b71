package cron

import (
	"strings"
	"testing"
	"time"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// slots are the first n after a moment, as the zone shows them.
func slots(s Schedule, after time.Time, n int) (out []string) {
	for range n {
		if after = s.Next(after); after.IsZero() {
			break
		}
		out = append(out, after.Format("2006-01-02T15:04:05-07:00"))
	}
	return out
}

func wantSlots(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
}

// What other dialects have and this one has not is refused by name; what both have is never misread.
func TestForeignDialects(t *testing.T) {
	for expr, want := range map[string]string{
		"0 0 * * L":          "6L",
		"0 0 * * 8L":         "last such day",
		"0 0 * * 1#6":        "k from 1 to 5",
		"0 0 * * #2":         "k from 1 to 5",
		"0 0 L-31 * *":       "L-30",
		"0 0 32W * *":        "nearest",
		"0 0 1-5W * *":       "nearest",
		"0 0 L/2 * *":        "day fields",
		"0 L * * *":          "day fields",
		"0 0 1 5L *":         "day fields",
		"0 0 1#2 * *":        "day fields",
		"0~30 * * * *":       "jitter",
		"H * * * *":          "jitter",
		"H(0-29)/10 * * * *": "jitter",
		"0 0 * * * 2027":     "seconds",
		"0 0 0 * * ? 2027":   "year",
		"@reboot":            "daemon.started",
		"0 0 30W 2 *":        "never fire",
		"0 0 31 4 *":         "never fire",
		"0 0 L-30 2,4 *":     "never fire",
	} {
		if s, err := Parse(expr, Options{Zone: time.UTC}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", expr, s, err, want)
		}
	}
	for _, expr := range []string{"* * * * *", "0 0 0 0 0 0 0"} {
		if _, err := Parse(expr, Options{Zone: time.UTC, Seconds: true}); err == nil {
			t.Errorf("%q was accepted with seconds", expr)
		}
	}
}

func TestDaysOfTheMonth(t *testing.T) {
	for expr, want := range map[string][]string{
		"0 0 L * *":     {"2026-01-31", "2026-02-28", "2026-03-31"},
		"0 0 l-1 * *":   {"2026-01-30", "2026-02-27", "2026-03-30"},
		"0 0 LW * *":    {"2026-01-30", "2026-02-27", "2026-03-31"},
		"0 0 1W * *":    {"2026-01-01", "2026-02-02", "2026-03-02"}, // 1 February and 1 March are Sundays
		"0 0 15W * *":   {"2026-01-15", "2026-02-16", "2026-03-16"},
		"0 0 31W * *":   {"2026-01-30", "2026-03-31", "2026-05-29"}, // never in the month before or after
		"0 0 * * 5L":    {"2026-01-30", "2026-02-27", "2026-03-27"},
		"0 0 * * friL":  {"2026-01-30", "2026-02-27", "2026-03-27"},
		"0 0 * * MON#1": {"2026-01-05", "2026-02-02", "2026-03-02"},
		"0 0 * * 7#5":   {"2026-03-29", "2026-05-31", "2026-08-30"},
		"0 0 1,L * *":   {"2026-01-01", "2026-01-31", "2026-02-01"},
		"0 0 L * 1#1":   {"2026-01-05", "2026-01-31", "2026-02-02"}, // both are restricted: either matches
		"0 0 29 2 *":    {"2028-02-29", "2032-02-29", "2036-02-29"},
	} {
		var got []string
		for _, s := range slots(mustParse(t, expr, time.UTC), at(t, "2026-01-01T00:00:00Z").Add(-time.Second), 3) {
			got = append(got, s[:10])
		}
		wantSlots(t, expr, got, want...)
	}
}

func TestSeconds(t *testing.T) {
	s, err := Parse("*/20 59 23 * * *", Options{Zone: time.UTC, Seconds: true})
	if err != nil {
		t.Fatal(err)
	}
	wantSlots(t, s.String(), slots(s, at(t, "2026-01-01T23:59:00Z"), 3), "2026-01-01T23:59:20+00:00", "2026-01-01T23:59:40+00:00", "2026-01-02T23:59:00+00:00")
	if s, err = Parse("@daily", Options{Zone: time.UTC, Seconds: true}); err != nil {
		t.Fatal(err)
	}
	wantSlots(t, s.String(), slots(s, at(t, "2026-01-01T00:00:00Z"), 1), "2026-01-02T00:00:00+00:00")
}

// P12 on the odd nights of five zones, with each rule. Intervals do not care for the rules.
func TestDaylightSaving(t *testing.T) {
	for _, c := range []struct {
		zone, expr, from string
		gap              Gap
		fold             Fold
		want             []string
	}{
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", GapSkip, FoldFirst, []string{"2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"}},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", GapFireAfter, FoldBoth, []string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"}},
		{"America/New_York", "*/30 * * * *", "2026-03-08T06:00:00Z", GapSkip, FoldFirst, []string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00"}},
		{"America/New_York", "*/30 * * * *", "2026-11-01T05:00:00Z", GapSkip, FoldFirst, []string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00"}},
		{"Europe/London", "15 1 * * *", "2026-03-28T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-03-29T02:00:00+01:00", "2026-03-30T01:15:00+01:00"}},
		{"Europe/London", "15 1 * * *", "2026-10-24T12:00:00Z", GapFireAfter, FoldBoth, []string{"2026-10-25T01:15:00+01:00", "2026-10-25T01:15:00+00:00"}},
		// Half an hour only.
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00:00Z", GapFireAfter, FoldFirst, []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00:00Z", GapFireAfter, FoldBoth, []string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30"}},
		// Ramadan: back, and forward again.
		{"Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00+00:00"}},
		{"Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00:00Z", GapSkip, FoldFirst, []string{"2026-03-23T02:30:00+01:00"}},
		// Midnight does not exist.
		{"America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}},
		{"America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z", GapFireAfter, FoldFirst, []string{"2026-04-04T23:30:00-03:00", "2026-04-05T23:30:00-04:00"}},
		{"America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z", GapFireAfter, FoldBoth, []string{"2026-04-04T23:30:00-03:00", "2026-04-04T23:30:00-04:00"}},
	} {
		s, err := Parse(c.expr, Options{Zone: location(t, c.zone), Gap: c.gap, Fold: c.fold})
		if err != nil {
			t.Fatal(err)
		}
		wantSlots(t, c.zone+" "+c.expr+" "+string(c.gap)+" "+string(c.fold), slots(s, at(t, c.from), len(c.want)), c.want...)
	}
}

func TestNotes(t *testing.T) {
	ny := location(t, "America/New_York")
	for _, c := range []struct{ expr, slot, want string }{
		{"30 2 * * *", "2026-03-08T03:00:00-04:00", "02:30 does not exist on this day: it fires right after the gap"},
		{"30 2 * * *", "2026-03-09T02:30:00-04:00", ""},
		{"30 1 * * *", "2026-11-01T01:30:00-04:00", "01:30 comes twice on this day: it fires on the first occurrence only"},
		{"*/30 * * * *", "2026-11-01T01:30:00-04:00", "first occurrence of 01:30: the clock is put back"},
		{"*/30 * * * *", "2026-11-01T01:30:00-05:00", "second occurrence of 01:30: the clock was put back"},
		{"*/30 * * * *", "2026-11-01T02:00:00-05:00", ""},
		{"*/30 * * * *", "2026-03-08T03:00:00-04:00", ""},
		{"@every 30m", "2026-11-01T01:30:00-05:00", "second occurrence of 01:30: the clock was put back"},
	} {
		if got := Note(mustParse(t, c.expr, ny), at(t, c.slot)); got != c.want {
			t.Errorf("%s at %s: %q, want %q", c.expr, c.slot, got, c.want)
		}
	}
}

func TestAt(t *testing.T) {
	s, err := At([]time.Time{at(t, "2026-12-24T18:00:00Z"), at(t, "2026-06-01T08:00:00+02:00")}, location(t, "Europe/London"))
	if err != nil {
		t.Fatal(err)
	}
	wantSlots(t, s.String(), slots(s, time.Time{}, 3), "2026-06-01T07:00:00+01:00", "2026-12-24T18:00:00+00:00")
	if got := s.Next(at(t, "2026-12-24T18:00:00Z")); !got.IsZero() {
		t.Errorf("after the last one: %s", got)
	}
	if s.String() != "at 2026-06-01T07:00:00+01:00, 2026-12-24T18:00:00Z" {
		t.Errorf("%s", s)
	}
	for _, bad := range [][]time.Time{nil, {at(t, "2026-12-24T18:00:00.5Z")}, {at(t, "2026-12-24T18:00:00Z"), at(t, "2026-12-24T19:00:00+01:00")}} {
		if _, err := At(bad, nil); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestBounds(t *testing.T) {
	daily := mustParse(t, "0 9 * * *", location(t, "Europe/London"))
	s, err := Bound(daily, Bounds{
		Start: at(t, "2026-12-23T09:00:00Z"), End: at(t, "2026-12-30T09:00:00Z"), Dates: []time.Time{at(t, "2026-12-25T00:00:00Z"), at(t, "2026-12-26T00:00:00Z")},
		Except: []Schedule{mustParse(t, "0 9 * * SAT,SUN", location(t, "Europe/London"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSlots(t, "bounded", slots(s, at(t, "2026-01-01T00:00:00Z"), 9),
		"2026-12-23T09:00:00+00:00", "2026-12-24T09:00:00+00:00", "2026-12-28T09:00:00+00:00", "2026-12-29T09:00:00+00:00", "2026-12-30T09:00:00+00:00")
	minutes := mustParse(t, "* * * * *", time.UTC)
	for what, b := range map[string]Bounds{
		"everything excluded": {Except: []Schedule{minutes}},
		"end before start":    {Start: at(t, "2026-12-24T00:00:00Z"), End: at(t, "2026-12-23T00:00:00Z")},
		"nothing between":     {Start: at(t, "2026-12-24T00:00:01Z"), End: at(t, "2026-12-24T00:00:59Z")},
	} {
		if _, err := Bound(minutes, b); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	if s, err := Bound(daily, Bounds{}); err != nil || s != daily {
		t.Errorf("without bounds: %v, %v", s, err)
	}
}
