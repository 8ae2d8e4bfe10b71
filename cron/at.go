package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// oneShots are single instants.
type oneShots struct {
	times []time.Time // in order
	loc   *time.Location
}

// At is a schedule of single instants, in whole seconds. Instants that have passed are accepted: a configuration outlives them.
func At(times []time.Time, zone *time.Location) (Schedule, error) {
	if zone == nil {
		zone = time.UTC
	}
	if len(times) == 0 {
		return nil, errors.New("no instant is given")
	}
	s := &oneShots{loc: zone}
	for _, t := range times {
		if t.Nanosecond() != 0 {
			return nil, fmt.Errorf("%s: want whole seconds", t.Format(time.RFC3339Nano))
		}
		s.times = append(s.times, t.In(zone))
	}
	slices.SortFunc(s.times, time.Time.Compare)
	for i, t := range s.times[1:] {
		if t.Equal(s.times[i]) {
			return nil, fmt.Errorf("%s is given twice", t.Format(time.RFC3339))
		}
	}
	return s, nil
}

func (s *oneShots) Next(after time.Time) time.Time {
	i, found := slices.BinarySearchFunc(s.times, after, time.Time.Compare)
	if found {
		i++
	}
	if i == len(s.times) {
		return time.Time{}
	}
	return s.times[i]
}

func (s *oneShots) Location() *time.Location { return s.loc }

func (s *oneShots) String() string {
	var texts []string
	for _, t := range s.times {
		texts = append(texts, t.Format(time.RFC3339))
	}
	return "at " + strings.Join(texts, ", ")
}

// identity stays when instants are added or removed: those that have not fired are still owed.
func (s *oneShots) identity() string { return "at" }
