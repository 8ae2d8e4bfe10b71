package cron

import "time"

// Change is a moment at which a zone's clock is put forward or back.
type Change struct {
	At            time.Time     // the first instant after it
	Before, After time.Duration // offsets, east of UTC
}

// Changes are those of a zone from one instant to another.
func Changes(zone *time.Location, from, to time.Time) (out []Change) {
	for at := from; ; {
		_, end := at.In(zone).ZoneBounds()
		if end.IsZero() || !end.Before(to) {
			return out
		}
		if !end.After(at) { // see zoneAt
			at = at.Add(24 * time.Hour)
			continue
		}
		_, before := end.Add(-time.Second).In(zone).Zone()
		_, after := end.In(zone).Zone()
		if before != after {
			out = append(out, Change{At: end.In(zone), Before: time.Duration(before) * time.Second, After: time.Duration(after) * time.Second})
		}
		at = end
	}
}

// Lost are the fixed times of a schedule that a change skips and for which nothing fires.
func Lost(s Schedule, c Change) (times []string) {
	sp, ok := unbounded(s).(*spec)
	if !ok || !sp.skipGap && !sp.interval || c.After <= c.Before {
		return nil
	}
	start := c.At.Unix()
	end := start + int64(c.After/time.Second)
	for local := start + int64(c.Before/time.Second); len(times) < 100; local++ {
		at, ok := sp.nextLocal(local, end)
		if !ok {
			break
		}
		times = append(times, clock(at))
		local = at
	}
	return times
}
