package cron

import (
	"errors"
	"fmt"
	"time"

	"github.com/triggerd/triggerd"
)

// BackfillMax is how many slots one backfill may have.
const BackfillMax = 1000

// headerBackfill names the batch in the event. Payload would do, but is decoded only when an expression asks for it.
const headerBackfill = "triggerd-backfill"

// Slots are the slots from one instant to another, both included. The error says that there are more than limit.
func Slots(s Schedule, from, to time.Time, limit int) ([]time.Time, error) {
	if to.Before(from) {
		return nil, errors.New("the interval ends before it begins")
	}
	var out []time.Time
	for slot := s.Next(from.Add(-1)); !slot.IsZero() && !slot.After(to); slot = s.Next(slot) {
		if len(out) == limit {
			return nil, fmt.Errorf("there are more than %d slots in the interval", limit)
		}
		out = append(out, slot)
	}
	return out, nil
}

// Backfill is the event of a past slot that a person wants, labelled with its batch. It has the id of the slot's tick, so a slot that has fired does
// not fire again; with again it has one of its own.
func Backfill(s Schedule, slot time.Time, batch string, again bool) (triggerd.Event, error) {
	tick := tickOf(s, slot)
	tick.Backfill = batch
	ev, err := tick.event()
	if again {
		ev.ID += "+" + batch
	}
	ev.Headers = map[string]string{headerBackfill: batch}
	return ev, err
}

// Backfilled reports whether an event is one of a backfill: its turns wait for each other, also where a tick would be skipped.
func Backfilled(ev *triggerd.Event) bool {
	return ev.Type == TickType && ev.Headers[headerBackfill] != ""
}
