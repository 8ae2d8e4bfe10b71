package cron

import (
	"fmt"
	"time"
)

// Note says what daylight saving does to a slot; "" when nothing.
func Note(s Schedule, slot time.Time) string {
	sp := &spec{loc: s.Location(), interval: true}
	if fixed, ok := unbounded(s).(*spec); ok {
		sp = fixed
	}
	t := slot.Unix()
	z := sp.zoneAt(t)
	local := t + z.offset
	if t == z.start && sp.skippedBy(z) {
		missing, _ := sp.nextLocal(z.start+z.before, z.start+z.offset)
		return fmt.Sprintf("%s does not exist on this day: it fires right after the gap", clock(missing))
	}
	if local < z.repeatedUntil {
		return "second occurrence of " + clock(local) + ": the clock was put back"
	}
	if z.localEnd != endless {
		next := sp.zoneAt(z.localEnd - z.offset)
		if back := z.offset - next.offset; back > 0 && local >= z.localEnd-back {
			if !sp.interval && !sp.bothFolds {
				return clock(local) + " comes twice on this day: it fires on the first occurrence only"
			}
			return "first occurrence of " + clock(local) + ": the clock is put back"
		}
	}
	return ""
}

// clock is a local time's time of day.
func clock(local int64) string {
	at := time.Unix(local, 0).UTC()
	if at.Second() != 0 {
		return at.Format("15:04:05")
	}
	return at.Format("15:04")
}
