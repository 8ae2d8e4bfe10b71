package sources

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/triggerd/triggerd"
)

// HopsHeader carries how many turns stand between a message and the outside world (promise P28). The `publish` and `http`
// actions set it; webhooks and pushes read it back.
const HopsHeader = "Triggerd-Hops"

// GapType is the type of an event that says that others may be missing (promise P9). Triggers see it only when they ask for it.
const GapType = "gap"

// CheckID reports why an id that a sender chose cannot name an event: too long, not UTF-8, or with control characters,
// which would make two ids print alike. The error wraps [triggerd.ErrInvalidEvent].
func CheckID(id string) error { return checkText("event id", id, triggerd.MaxEventID) }

// CheckType is [CheckID] for a type that a sender chose.
func CheckType(typ string) error { return checkText("event type", typ, triggerd.MaxEventType) }

func checkText(what, s string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", triggerd.ErrInvalidEvent, what, len(s), limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not valid UTF-8", triggerd.ErrInvalidEvent, what)
	case strings.ContainsFunc(s, isControl):
		return fmt.Errorf("%w: %s holds a control character", triggerd.ErrInvalidEvent, what)
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }

// ParseHops reads a [HopsHeader]: digits only, "" is 0. Numbers over any sensible chain are capped, so that they end as
// [triggerd.ErrLoop] and not as an overflow. The error wraps [triggerd.ErrInvalidEvent].
func ParseHops(s string) (int, error) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%w: %s must be a number", triggerd.ErrInvalidEvent, HopsHeader)
	}
	if len(s) > 6 {
		return 1_000_000, nil
	}
	n, _ := strconv.Atoi(s) // only "" fails here
	return n, nil
}

// NewID returns a fresh event id for a message that brings none: a ULID. It never repeats, so a sender's retry is an event of its own.
func NewID() string { return ulid.Make().String() }

// Gap returns the event that says that others may be missing, and why. Emit it once: every call makes a new event.
func Gap(reason string, at time.Time) triggerd.Event {
	payload, _ := json.Marshal(map[string]any{"reason": reason, "at": at.UTC()}) // strings and times always marshal
	return triggerd.Event{
		ID:          "gap-" + NewID(),
		Type:        GapType,
		Time:        at,
		ContentType: "application/json",
		Payload:     payload,
	}
}
