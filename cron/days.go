package cron

import (
	"fmt"
	"strings"
	"time"
)

// days are the days that depend on the month, as Quartz writes them: L, L-n, nW and LW in the day of month, nL and n#k in the day of week.
type days struct {
	last        uint32   // bit n: n days before the last day of the month
	nearest     uint32   // bit n: the weekday that is nearest to day n, in the same month
	lastWeekday bool     // the last one that is no Saturday or Sunday
	lastOf      uint8    // bit w: the month's last weekday w
	nth         [6]uint8 // nth[k], bit w: the month's k-th weekday w
}

// dayOfMonth reads L, L-n, LW and nW.
func dayOfMonth(f field, part string, d *days) (bool, error) {
	p := strings.ToUpper(part)
	switch {
	case p == "L":
		d.last |= 1
	case p == "LW":
		d.lastWeekday = true
	case strings.HasPrefix(p, "L-"):
		n, err := number(p[2:])
		if err != nil || n > 30 {
			return false, fmt.Errorf("%q: want L-n, n days before the last one, up to L-30", part)
		}
		d.last |= 1 << n
	case strings.HasSuffix(p, "W"):
		n, err := f.value(strings.TrimSuffix(p, "W"))
		if err != nil {
			return false, fmt.Errorf("%q: want nW, the weekday nearest to day n: %w", part, err)
		}
		d.nearest |= 1 << n
	default:
		return false, nil
	}
	return true, nil
}

// dayOfWeek reads nL and n#k.
func dayOfWeek(f field, part string, d *days) (bool, error) {
	p := strings.ToUpper(part)
	if day, k, ok := strings.Cut(p, "#"); ok {
		w, err := f.value(day)
		n, kerr := number(k)
		if err != nil || kerr != nil || n < 1 || n > 5 {
			return false, fmt.Errorf("%q: want day#k, the k-th such day of the month, k from 1 to 5", part)
		}
		d.nth[n] |= 1 << (w % 7)
		return true, nil
	}
	if p == "L" {
		return false, fmt.Errorf("%q alone is Saturday in Quartz and the last day elsewhere: write SAT, or 6L for the month's last Saturday", part)
	}
	day, ok := strings.CutSuffix(p, "L")
	if !ok {
		return false, nil
	}
	w, err := f.value(day)
	if err != nil {
		return false, fmt.Errorf("%q: want day and L, the month's last such day: %w", part, err)
	}
	d.lastOf |= 1 << (w % 7)
	return true, nil
}

// inMonth reports whether a day is one of those that the day of month names by L and W.
func (d *days) inMonth(day time.Time) bool {
	if d.last == 0 && d.nearest == 0 && !d.lastWeekday {
		return false
	}
	last := lastDay(day)
	if d.last&(1<<(last-day.Day())) != 0 || d.lastWeekday && nearestWeekday(day, last) == day.Day() {
		return true
	}
	for n := max(1, day.Day()-2); n <= min(last, day.Day()+2); n++ { // from no further away
		if d.nearest&(1<<n) != 0 && nearestWeekday(day, n) == day.Day() {
			return true
		}
	}
	return false
}

// inWeek reports whether a day is one of those that the day of week names by L and #.
func (d *days) inWeek(day time.Time) bool {
	w := uint8(1) << int(day.Weekday())
	return d.nth[(day.Day()-1)/7+1]&w != 0 || d.lastOf&w != 0 && day.Day()+7 > lastDay(day)
}

// lastDay is the number of days in the day's month.
func lastDay(day time.Time) int {
	return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearestWeekday is the weekday in the day's month that is nearest to day n of it.
func nearestWeekday(day time.Time, n int) int {
	switch time.Date(day.Year(), day.Month(), n, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if n == 1 {
			return 3
		}
		return n - 1
	case time.Sunday:
		if n == lastDay(day) {
			return n - 2
		}
		return n + 1
	}
	return n
}
