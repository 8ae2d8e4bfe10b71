package configs

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/triggerd/triggerd/cron"
)

// Build makes the schedule with all that takes slots away from it. The configuration must have been checked: its defaults are filled in.
func (s *Cron) Build() (cron.Schedule, error) {
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", s.Timezone, err)
	}
	built, at, err := s.build(zone)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return built, nil
}

// build is Build in a zone. With an error it says which key is wrong.
func (s *Cron) build(zone *time.Location) (built cron.Schedule, at path, err error) {
	if len(s.At) > 0 {
		built, at, err = s.instants(zone)
	} else {
		at = path{"schedule"}
		built, err = cron.Parse(s.Schedule, s.options(zone))
	}
	if err != nil {
		return nil, at, err
	}
	b, at, err := s.bounds(zone)
	if err != nil {
		return nil, at, err
	}
	built, err = cron.Bound(built, b)
	return built, nil, err
}

func (s *Cron) options(zone *time.Location) cron.Options {
	return cron.Options{Zone: zone, Seconds: s.Seconds, Gap: cron.Gap(s.DST.Gap), Fold: cron.Fold(s.DST.Fold)}
}

func (s *Cron) instants(zone *time.Location) (cron.Schedule, path, error) {
	var times []time.Time
	for i, text := range s.At {
		t, err := instant(text)
		if err != nil {
			return nil, path{"at"}.index(i), err
		}
		times = append(times, t)
	}
	built, err := cron.At(times, zone)
	return built, path{"at"}, err
}

func (s *Cron) bounds(zone *time.Location) (b cron.Bounds, at path, err error) {
	if s.Start != "" {
		if b.Start, err = bound(s.Start, zone, 0); err != nil {
			return b, path{"start"}, err
		}
	}
	if s.End != "" {
		if b.End, err = bound(s.End, zone, 1); err != nil {
			return b, path{"end"}, err
		}
	}
	for i, text := range s.Exclude {
		if isDate.MatchString(strings.TrimSpace(text)) {
			d, err := time.ParseInLocation(time.DateOnly, strings.TrimSpace(text), time.UTC)
			if err != nil {
				return b, path{"exclude"}.index(i), fmt.Errorf("%q is no date", text)
			}
			b.Dates = append(b.Dates, d)
			continue
		}
		e, err := cron.Parse(text, cron.Options{Zone: zone, Gap: cron.Gap(s.DST.Gap), Fold: cron.FoldBoth})
		if err != nil {
			return b, path{"exclude"}.index(i), fmt.Errorf("neither a date such as 2026-12-25 nor a schedule of five fields: %w", err)
		}
		b.Except = append(b.Except, e)
	}
	return b, nil, nil
}

var isDate = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

func instant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(text))
	if err != nil {
		return t, fmt.Errorf("%q is no instant such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00", text)
	}
	return t, nil
}

// bound reads an instant, or a date: the beginning of that day, or days later the last second before one.
func bound(text string, zone *time.Location, days int) (time.Time, error) {
	text = strings.TrimSpace(text)
	if !isDate.MatchString(text) {
		t, err := instant(text)
		if err != nil {
			return t, fmt.Errorf("%w, nor a date such as 2026-12-24", err)
		}
		return t, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		return t, fmt.Errorf("%q is no date", text)
	}
	if days > 0 {
		t = time.Date(t.Year(), t.Month(), t.Day()+days, 0, 0, 0, 0, zone).Add(-time.Second)
	}
	return t, nil
}

func (c *checker) cron(at path, s *Cron) {
	if c.exactlyOne(at, kindsOf(reflect.TypeFor[Cron](), "times"), "a schedule or instants") == "" || s.Schedule == "" && len(s.At) == 0 {
		return
	}
	for _, key := range []string{"schedule", "seconds", "at", "start", "end", "exclude", "dst", "timezone"} {
		if k := at.key(key); c.given(k) && !c.known(k) {
			return // reported already
		}
	}
	if s.Timezone == "" && len(s.At) == 0 && !c.given(at.key("timezone")) && !c.given(path{"defaults", "timezone"}) {
		c.report(at, "schedule has no time zone", "set timezone here or in defaults; timezone: UTC is one")
	}
	zone, err := cron.Zone(s.Timezone)
	if s.Timezone == "" || err != nil {
		zone = time.UTC // the rest is checked all the same
	}
	if s.Seconds && len(s.At) > 0 {
		c.report(at.key("seconds"), "seconds is for a schedule", "instants have theirs")
	}
	if _, key, err := s.build(zone); err != nil {
		c.report(append(at[:len(at):len(at)], key...), err.Error(), scheduleHint(s.Schedule))
	}
}

func scheduleHint(s string) string {
	if strings.HasPrefix(s, "TZ=") || strings.HasPrefix(s, "CRON_TZ=") {
		return "use the key timezone"
	}
	return ""
}
