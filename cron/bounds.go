package cron

import (
	"errors"
	"time"
)

// Bounds take slots away from a schedule.
type Bounds struct {
	Start, End time.Time   // no slot is before Start or after End; zero = there is no bound
	Dates      []time.Time // days without a slot: their year, month and day, in the schedule's zone
	Except     []Schedule  // nor is there one in a minute in which one of these schedules has one
}

// excludedMax bounds the slots in a row that are looked at before a schedule counts as excluded from here on: every minute of a year.
const excludedMax = 366 * 24 * 60

type bounded struct {
	Schedule
	b     Bounds
	dates map[civil]bool
}

// civil is a date without a zone.
type civil struct {
	year  int
	month time.Month
	day   int
}

func civilOf(t time.Time) civil {
	y, m, d := t.Date()
	return civil{y, m, d}
}

// Bound is a schedule without the slots that b takes away. It refuses bounds that leave none.
func Bound(s Schedule, b Bounds) (Schedule, error) {
	if b.Start.IsZero() && b.End.IsZero() && len(b.Dates) == 0 && len(b.Except) == 0 {
		return s, nil
	}
	if !b.End.IsZero() && b.End.Before(b.Start) {
		return nil, errors.New("end is before start")
	}
	out := &bounded{Schedule: s, b: b, dates: map[civil]bool{}}
	for _, d := range b.Dates {
		out.dates[civilOf(d)] = true
	}
	from := b.Start.Add(-time.Second)
	if b.Start.IsZero() {
		from = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if out.Next(from).IsZero() {
		return nil, errors.New("no slot is left: start, end and exclude take all of them away")
	}
	return out, nil
}

func (s *bounded) Next(after time.Time) time.Time {
	if first := s.b.Start.Add(-time.Second); !s.b.Start.IsZero() && after.Before(first) {
		after = first
	}
	slot := s.Schedule.Next(after)
	for range excludedMax {
		switch {
		case slot.IsZero(), !s.b.End.IsZero() && slot.After(s.b.End):
			return time.Time{}
		case s.dates[civilOf(slot)]:
			y, m, d := slot.Date()
			slot = s.Schedule.Next(time.Date(y, m, d+1, 0, 0, 0, 0, slot.Location()).Add(-time.Second)) // the day has no other
		case s.except(slot):
			slot = s.Schedule.Next(slot)
		default:
			return slot
		}
	}
	return time.Time{}
}

// except reports whether one of the other schedules has the slot's minute.
func (s *bounded) except(slot time.Time) bool {
	minute := slot.Add(-time.Duration(slot.Second()) * time.Second)
	for _, e := range s.b.Except {
		if next := e.Next(minute.Add(-time.Second)); !next.IsZero() && !next.After(slot) {
			return true
		}
	}
	return false
}

// identity is that of what is bounded: a changed bound does not make a schedule start anew.
func (s *bounded) identity() string { return identity(s.Schedule) }

// unbounded is a schedule as it was before [Bound].
func unbounded(s Schedule) Schedule {
	if b, ok := s.(*bounded); ok {
		return b.Schedule
	}
	return s
}

// identity is what a position of a schedule belongs to.
func identity(s Schedule) string {
	if i, ok := s.(interface{ identity() string }); ok {
		return i.identity()
	}
	return s.String()
}
