package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zone data is inside the binary (promise P14)
)

// Schedule names the instants ("slots") at which something is due. It holds no clock and is safe for concurrent use.
type Schedule interface {
	// Next returns the first slot after the given instant (never the instant itself), in the schedule's zone; the zero time
	// if none is left. It depends on its argument alone: every daemon computes the same slots.
	Next(after time.Time) time.Time
	// Location is the zone in which the expression is meant.
	Location() *time.Location
	// String is the expression as it was written, without surrounding blanks.
	String() string
}

// Gap says what becomes of a fixed time that the clock skips when it is put forward.
type Gap string

// Fold says what becomes of a fixed time that the clock shows twice when it is put back.
type Fold string

// The rules of daylight saving (promise P12). They are about fixed times; intervals follow the clock on the wall.
const (
	GapFireAfter Gap  = "fire_after" // once, at the first instant after the gap
	GapSkip      Gap  = "skip"       // not at all
	FoldFirst    Fold = "first"      // on the first occurrence only
	FoldBoth     Fold = "both"       // on both
)

// Options say how the text of a schedule is meant.
type Options struct {
	Zone    *time.Location // required
	Seconds bool           // there are six fields, the first of which is the second
	Gap     Gap            // "" = [GapFireAfter]
	Fold    Fold           // "" = [FoldFirst]
}

// Parse reads a schedule. It refuses what can never fire. Errors name the field and what is wrong with it.
func Parse(expr string, o Options) (Schedule, error) {
	expr = strings.TrimSpace(expr)
	loc := o.Zone
	if loc == nil {
		return nil, errors.New("schedule has no time zone")
	}
	if expr == "" {
		return nil, errors.New("schedule is empty")
	}
	if strings.HasPrefix(expr, "TZ=") || strings.HasPrefix(expr, "CRON_TZ=") {
		return nil, errors.New("a zone in the schedule is not supported: set `timezone`")
	}
	if d, ok := strings.CutPrefix(expr, "@every"); ok {
		return parseEvery(expr, d, loc)
	}
	fields := strings.Fields(expr)
	if strings.HasPrefix(expr, "@") {
		spec, ok := descriptors[expr]
		if expr == "@reboot" {
			return nil, errors.New("@reboot is not a time: use a trigger on the event daemon.started of the connection triggerd")
		}
		if !ok {
			return nil, fmt.Errorf("unknown descriptor %q: use @hourly, @daily, @weekly, @monthly, @yearly or @every <duration>", expr)
		}
		fields = strings.Fields(spec)
	}
	switch n := len(fields); {
	case strings.HasPrefix(expr, "@"):
	case n == 6 && !o.Seconds:
		return nil, errors.New("six fields: set `seconds: true` if the first one is the second, else write five")
	case n == 7:
		return nil, errors.New("seven fields: a year is not supported, use start and end, or at")
	case n == 5 && o.Seconds:
		return nil, errors.New("five fields with `seconds: true`: want six (second minute hour day month weekday)")
	case n != 6 && o.Seconds:
		return nil, fmt.Errorf("want six fields (second minute hour day month weekday), found %d", n)
	case n != 5 && !o.Seconds:
		return nil, fmt.Errorf("want five fields (minute hour day month weekday), found %d", n)
	}
	s := &spec{expr: expr, loc: loc, skipGap: o.Gap == GapSkip, bothFolds: o.Fold == FoldBoth}
	if err := s.parse(fields); err != nil {
		return nil, err
	}
	if !s.dayExists() {
		return nil, fmt.Errorf("schedule %q can never fire: no such date", expr)
	}
	return s, nil
}

var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// every is "@every <duration>": the multiples of a duration since the Unix epoch.
type every struct {
	expr    string
	seconds int64
	loc     *time.Location
}

// maxEvery keeps "@every" within what a year-long look-ahead shows; longer ones are dates, and dates are better written as such.
const maxEvery = 366 * 24 * time.Hour

func parseEvery(expr, text string, loc *time.Location) (Schedule, error) {
	if text == strings.TrimLeft(text, " \t") {
		return nil, fmt.Errorf("%q: want @every, a blank and a duration such as 90s", expr)
	}
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", expr, err)
	}
	if d < time.Second || d%time.Second != 0 || d > maxEvery {
		return nil, fmt.Errorf("%q: want whole seconds, from 1s to %v", expr, maxEvery)
	}
	return &every{expr: expr, seconds: int64(d / time.Second), loc: loc}, nil
}

func (e *every) Next(after time.Time) time.Time {
	n := after.Unix() / e.seconds
	if after.Unix() < 0 && after.Unix()%e.seconds != 0 {
		n-- // towards the past, also before 1970
	}
	return time.Unix((n+1)*e.seconds, 0).In(e.loc)
}

func (e *every) Location() *time.Location { return e.loc }
func (e *every) String() string           { return e.expr }
