package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawn is a field of a random expression: its text, and what it means, worked out without the parser.
type drawn struct {
	text  string
	match func(time.Time) bool
	star  bool // it begins with `*` or `?`
}

// drawList draws a list of parts, any of which may match.
func drawList(t *rapid.T, name string, part func(*rapid.T) drawn) drawn {
	parts := rapid.SliceOfN(rapid.Custom(part), 1, 3).Draw(t, name)
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.text)
	}
	return drawn{text: strings.Join(texts, ","), star: parts[0].star, match: func(at time.Time) bool {
		for _, p := range parts {
			if p.match(at) {
				return true
			}
		}
		return false
	}}
}

// drawNumbers draws what every field has: `*`, a value, a range, and steps.
func drawNumbers(lo, hi int, of func(time.Time) int) func(*rapid.T) drawn {
	return func(t *rapid.T) drawn {
		a := rapid.IntRange(lo, hi).Draw(t, "from")
		b := rapid.IntRange(a, hi).Draw(t, "to")
		step := rapid.IntRange(1, max(1, (hi-lo)/2)).Draw(t, "step")
		between := func(a, b, step int) func(time.Time) bool {
			return func(at time.Time) bool { v := of(at); return v >= a && v <= b && (v-a)%step == 0 }
		}
		return rapid.SampledFrom([]drawn{
			{text: "*", match: between(lo, hi, 1), star: true},
			{text: fmt.Sprint("*/", step), match: between(lo, hi, step), star: true},
			{text: fmt.Sprint(a), match: between(a, a, 1)},
			{text: fmt.Sprint(a, "-", b), match: between(a, b, 1)},
			{text: fmt.Sprint(a, "-", b, "/", step), match: between(a, b, step)},
			{text: fmt.Sprint(a, "/", step), match: between(a, hi, step)},
		}).Draw(t, "part")
	}
}

// month lists the days of a moment's month.
func month(at time.Time) (days []time.Time) {
	for d := time.Date(at.Year(), at.Month(), 1, 12, 0, 0, 0, time.UTC); d.Month() == at.Month(); d = d.AddDate(0, 0, 1) {
		days = append(days, d)
	}
	return days
}

func workday(d time.Time) bool { return d.Weekday() != time.Saturday && d.Weekday() != time.Sunday }

// nearestWorkday looks further and further away from day n of the month, back first.
func nearestWorkday(days []time.Time, n int) int {
	for away := range 3 {
		for _, i := range []int{n - 1 - away, n - 1 + away} {
			if n <= len(days) && i >= 0 && i < len(days) && workday(days[i]) {
				return i + 1
			}
		}
	}
	return 0
}

func drawDayOfMonth(t *rapid.T) drawn {
	n := rapid.IntRange(1, 31).Draw(t, "n")
	return rapid.SampledFrom([]drawn{
		{text: "L", match: func(at time.Time) bool { return at.Day() == len(month(at)) }},
		{text: fmt.Sprint("L-", n-1), match: func(at time.Time) bool { return at.Day() == len(month(at))-(n-1) }},
		{text: fmt.Sprint(n, "W"), match: func(at time.Time) bool { return at.Day() == nearestWorkday(month(at), n) }},
		{text: "LW", match: func(at time.Time) bool { days := month(at); return at.Day() == nearestWorkday(days, len(days)) }},
		drawNumbers(1, 31, time.Time.Day)(t),
		drawNumbers(1, 31, time.Time.Day)(t),
		{text: "?", match: func(time.Time) bool { return true }, star: true},
	}).Draw(t, "day of month")
}

func drawDayOfWeek(t *rapid.T) drawn {
	w, k := rapid.IntRange(0, 7).Draw(t, "w"), rapid.IntRange(1, 5).Draw(t, "k")
	nth := func(at time.Time) (n, of int) {
		for _, d := range month(at) {
			if d.Weekday() == at.Weekday() {
				if of++; d.Day() <= at.Day() {
					n++
				}
			}
		}
		return n, of
	}
	is := func(at time.Time) bool { return int(at.Weekday()) == w%7 }
	return rapid.SampledFrom([]drawn{
		{text: fmt.Sprint(w, "#", k), match: func(at time.Time) bool { n, _ := nth(at); return is(at) && n == k }},
		{text: fmt.Sprint(w, "L"), match: func(at time.Time) bool { n, of := nth(at); return is(at) && n == of }},
		{text: strings.ToUpper(fields[5].names[w%7]), match: is},
		drawNumbers(0, 6, func(at time.Time) int { return int(at.Weekday()) })(t),
		drawNumbers(0, 6, func(at time.Time) int { return int(at.Weekday()) })(t),
		{text: "?", match: func(time.Time) bool { return true }, star: true},
	}).Draw(t, "day of week")
}

// Over random expressions with all that the dialect has: slots rise, lie in the zone, match the expression field by field, and no matching moment
// is skipped, as a plain walk over all of them shows.
func TestNextAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Bool().Draw(t, "seconds")
		unit, window := time.Minute, 45*24*time.Hour
		second := drawn{match: func(at time.Time) bool { return at.Second() == 0 }}
		if seconds {
			unit, window = time.Second, 3*time.Hour
			second = drawList(t, "seconds field", drawNumbers(0, 59, time.Time.Second))
		}
		minute := drawList(t, "minute", drawNumbers(0, 59, time.Time.Minute))
		hour := drawList(t, "hour", drawNumbers(0, 23, time.Time.Hour))
		dom := drawList(t, "dom", drawDayOfMonth)
		mon := drawList(t, "month", drawNumbers(1, 12, func(at time.Time) int { return int(at.Month()) }))
		dow := drawList(t, "dow", drawDayOfWeek)
		zone := time.UTC
		if second.star || minute.star || hour.star { // fixed times do not follow the clock through a change of offset
			var err error
			if zone, err = time.LoadLocation(rapid.SampledFrom([]string{"UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"}).Draw(t, "zone")); err != nil {
				t.Fatal(err)
			}
		}
		expr := strings.TrimSpace(strings.Join([]string{second.text, minute.text, hour.text, dom.text, mon.text, dow.text}, " "))
		from := time.Unix(rapid.Int64Range(1_700_000_000, 2_000_000_000).Draw(t, "from"), 0)
		want := time.Time{}
		for at := from.Truncate(unit).Add(unit); at.Sub(from) < window; at = at.Add(unit) {
			l := at.In(zone)
			if !second.match(l) || !minute.match(l) || !hour.match(l) || !mon.match(l) {
				continue
			}
			if in, of := dom.match(l), dow.match(l); in && of || (in || of) && !dom.star && !dow.star {
				want = at
				break
			}
		}
		s, err := Parse(expr, Options{Zone: zone, Seconds: seconds})
		if err != nil {
			if !strings.Contains(err.Error(), "never fire") || !want.IsZero() {
				t.Fatalf("%q: %v, a walk finds %s", expr, err, want)
			}
			return
		}
		got := s.Next(from)
		switch {
		case !got.After(from) || got.Location() != zone:
			t.Fatalf("%q after %s: %s in %s", expr, from, got, got.Location())
		case want.IsZero() && got.Sub(from) < window-unit, !want.IsZero() && !got.Equal(want):
			t.Fatalf("%q in %s after %s: %s, a walk finds %s", expr, zone, from.In(zone), got, want)
		}
	})
}
