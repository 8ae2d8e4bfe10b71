// Package triggerd holds the words that every other package speaks: events, cursors, turn keys, outcomes and the errors callers branch on.
//
// It imports the standard library only, so that any package may import it.
package triggerd

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Cursor is a source's own opaque position. Nil means that the source has none;
// an empty, non-nil cursor is a position like any other.
type Cursor []byte

// DefaultSubscription is the subscription of a source that has a single stream.
const DefaultSubscription = "0"

// MaxEventID is the longest event id that is accepted, in bytes. Ids travel in message headers and turn keys.
const MaxEventID = 1024

// MaxEventType is the longest event type that is accepted, in bytes.
const MaxEventType = 256

// MaxHops is how many turns may stand in a chain of causes before an event is refused with [ErrLoop] (promise P28).
const MaxHops = 8

// Event is one thing that happened upstream. Connection and ID name it: the same pair is the same event, however often it is sent.
type Event struct {
	Connection   string            // the connection's first name (keys survive a rename)
	Subscription string            // DefaultSubscription for a source with one stream
	ID           string            // unique within Connection and Subscription
	Type         string            // dotted, for example "order.created"
	Time         time.Time         // when it happened upstream; Received where the source does not say
	Received     time.Time         // when triggerd took it in; expressions see it as `now`
	ContentType  string            // media type of Payload; "" when unknown
	Payload      []byte            // byte for byte as it was received
	Headers      map[string]string // the source's headers, names in lower case, without credentials
	Cursor       Cursor            // the source's position after this event; nil when it has none
	Hops         int               // turns that stand between this event and the outside world
	Target       string            // only for the connection "manual": the one trigger that may match
	Seq          uint64            // sequence in EVENTS; 0 before the event is stored
	Large        int64             // bytes of a payload that was left in its blob: lists do not load it
}

// Size is the payload's length in bytes, loaded or not.
func (e *Event) Size() int64 {
	if e.Large > 0 {
		return e.Large
	}
	return int64(len(e.Payload))
}

// Validate reports the first field that makes e unfit to be stored. The error wraps [ErrInvalidEvent] or is [ErrLoop].
func (e *Event) Validate() error {
	switch {
	case ValidName(e.Connection) != nil:
		return fmt.Errorf("%w: connection: %w", ErrInvalidEvent, ValidName(e.Connection))
	case e.ID == "":
		return fmt.Errorf("%w: id is empty", ErrInvalidEvent)
	case len(e.ID) > MaxEventID:
		return fmt.Errorf("%w: id has %d bytes, the limit is %d", ErrInvalidEvent, len(e.ID), MaxEventID)
	case !utf8.ValidString(e.ID):
		return fmt.Errorf("%w: id is not valid UTF-8", ErrInvalidEvent)
	case e.Type == "":
		return fmt.Errorf("%w: type is empty", ErrInvalidEvent)
	case len(e.Type) > MaxEventType:
		return fmt.Errorf("%w: type has %d bytes, the limit is %d", ErrInvalidEvent, len(e.Type), MaxEventType)
	case !utf8.ValidString(e.Type):
		return fmt.Errorf("%w: type is not valid UTF-8", ErrInvalidEvent)
	case e.Hops > MaxHops:
		return fmt.Errorf("%w: %d turns in a row caused each other, the limit is %d", ErrLoop, e.Hops, MaxHops)
	}
	return nil
}

// Receipt is the answer to a stored event.
type Receipt struct {
	Seq       uint64 // sequence in EVENTS; 0 when Duplicate
	Duplicate bool   // the event was there already; nothing was stored
}

// ValidName reports why s cannot name a connection or a trigger: a letter, then letters, digits, '_' and '-', at most 64 of them.
// Names become parts of NATS subjects and of turn keys, so they hold no '.', ':' or '#'.
func ValidName(s string) error {
	if s == "" {
		return errors.New("a name is empty")
	}
	if len(s) > 64 {
		return fmt.Errorf("name %q has %d characters, the limit is 64", s[:16]+"...", len(s))
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if letter || i > 0 && (r >= '0' && r <= '9' || r == '_' || r == '-') {
			continue
		}
		return fmt.Errorf("name %q: use a letter, then letters, digits, '_' or '-' (found %q)", s, r)
	}
	return nil
}

// IsText reports whether a payload of this content type is shown to expressions as text rather than as bytes.
func IsText(contentType string) bool {
	ct := strings.ToLower(contentType)
	return strings.HasPrefix(ct, "text/") || strings.Contains(ct, "xml") || strings.Contains(ct, "x-www-form-urlencoded")
}
