package cron

import (
	"math/bits"
	"time"
)

// spec is a schedule of five fields. Bit v of a set says that value v matches.
type spec struct {
	expr                                  string
	loc                                   *time.Location
	second, minute, hour, dom, month, dow uint64
	days                                  days
	interval                              bool // second, minute or hour begins with `*`: follows the wall clock through a change of offset
	anyDay                                bool // a day field begins with `*`: both must match, else either
	skipGap, bothFolds                    bool
}

const (
	minuteSeconds = 60
	daySeconds    = 24 * 60 * minuteSeconds
	// horizon is one whole cycle of the Gregorian calendar: what does not fire within it never does.
	horizon = 400 * 366 * daySeconds
)

// Next walks over the stretches of time in which the zone's offset is constant. Within one, wall time and instants run in step.
func (s *spec) Next(after time.Time) time.Time {
	t := after.Unix() + 1 // the first whole second that is later; fractions of `after` belong to its own second
	for limit := t + horizon; t < limit; {
		z := s.zoneAt(t)
		if t == z.start && s.skippedBy(z) {
			return time.Unix(t, 0).In(s.loc)
		}
		local := t + z.offset
		if !s.interval && !s.bothFolds {
			local = max(local, z.repeatedUntil)
		}
		if at, ok := s.nextLocal(local, z.localEnd); ok {
			return time.Unix(at-z.offset, 0).In(s.loc)
		}
		if z.localEnd == endless {
			return time.Time{}
		}
		t = z.localEnd - z.offset
	}
	return time.Time{}
}

func (s *spec) Location() *time.Location { return s.loc }
func (s *spec) String() string           { return s.expr }

const endless = int64(1) << 60

// zone is a stretch of constant offset. Local times are seconds of a clock that shows wall time, counted as if it were UTC.
type zone struct {
	start         int64 // instant of its first second
	offset        int64 // seconds east of UTC
	before        int64 // the offset before it
	localEnd      int64 // local time at which it ends, exclusive
	repeatedUntil int64 // local times below it were shown before, in the stretch before
}

func (s *spec) zoneAt(t int64) zone {
	at := time.Unix(t, 0).In(s.loc)
	_, offset := at.Zone()
	z := zone{offset: int64(offset), before: int64(offset), start: -endless, localEnd: endless, repeatedUntil: -endless}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		z.start, z.before = start.Unix(), int64(before)
		if z.before > z.offset {
			z.repeatedUntil = z.start + z.before
		}
	}
	switch {
	case end.IsZero():
	case end.Unix() > t:
		z.localEnd = end.Unix() + z.offset
	default:
		// Beyond the zone's table Go ends a year's stretches after 365 days, so on 31 December of a leap year the end
		// lies behind t. A day further on it is right again.
		z.localEnd = t + daySeconds + z.offset
	}
	return z
}

// skippedBy reports whether a fixed time lies in the gap that the clock jumped over when z began.
func (s *spec) skippedBy(z zone) bool {
	if s.interval || s.skipGap || z.offset <= z.before {
		return false
	}
	_, ok := s.nextLocal(z.start+z.before, z.start+z.offset)
	return ok
}

// nextLocal returns the first matching second in [from, end) of local time.
func (s *spec) nextLocal(from, end int64) (int64, bool) {
	day := time.Unix(from, 0).UTC()
	midnight := floor(from, daySeconds)
	for stop := min(end, from+horizon); midnight < stop; {
		if s.month&(1<<int(day.Month())) == 0 {
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			midnight = day.Unix()
			continue
		}
		if s.matchesDay(day) {
			if at, ok := s.nextInDay(max(from-midnight, 0)); ok {
				return midnight + at, midnight+at < end
			}
		}
		midnight += daySeconds
		day = time.Unix(midnight, 0).UTC()
	}
	return 0, false
}

// nextInDay returns the first matching second of any day that is not before from; both are in seconds since midnight.
func (s *spec) nextInDay(from int64) (int64, bool) {
	hour, minute, second := from/3600, from%3600/minuteSeconds, from%minuteSeconds
	for h := nextBit(s.hour, hour); h < 24; h = nextBit(s.hour, h+1) {
		if h > hour {
			minute, second = 0, 0
		}
		for m := nextBit(s.minute, minute); m < 60; m = nextBit(s.minute, m+1) {
			if m > minute {
				second = 0
			}
			if sec := nextBit(s.second, second); sec < 60 {
				return h*3600 + m*minuteSeconds + sec, true
			}
		}
	}
	return 0, false
}

func (s *spec) matchesDay(day time.Time) bool {
	dom, dow := s.dom&(1<<day.Day()) != 0 || s.days.inMonth(day), s.dow&(1<<int(day.Weekday())) != 0 || s.days.inWeek(day)
	if s.anyDay {
		return dom && dow
	}
	return dom || dow
}

// dayExists reports whether any date at all matches, such as not 30 February.
func (s *spec) dayExists() bool {
	_, ok := s.nextLocal(0, horizon)
	return ok
}

// nextBit is the lowest set bit of set that is not below from; 64 or more when there is none.
func nextBit(set uint64, from int64) int64 {
	if from >= 64 {
		return 64
	}
	return int64(bits.TrailingZeros64(set &^ (1<<from - 1)))
}

func floor(v, unit int64) int64 {
	r := v % unit
	if r < 0 {
		r += unit
	}
	return v - r
}
