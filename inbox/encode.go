package inbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Headers of a stored event: CloudEvents binary mode, and ours for what CloudEvents has no place for.
const (
	headerID          = "ce-id"
	headerType        = "ce-type"
	headerSource      = "ce-source"
	headerSpecVersion = "ce-specversion"
	headerTime        = "ce-time"
	headerContentType = "content-type"
	headerReceived    = "Triggerd-Received"
	headerUpstream    = "Triggerd-Headers" // the source's own headers, JSON
	headerTarget      = "Triggerd-Target"
	headerSize        = "Triggerd-Size" // bytes of a payload that is in a blob
)

// Encode makes the message of an event, payload included. Decode reads it back, byte for byte.
// The error is [triggerd.ErrInvalidEvent] or [triggerd.ErrLoop] for what Decode would refuse.
func Encode(n bus.Names, ev *triggerd.Event) (*nats.Msg, error) {
	if err := cmp.Or(ev.Validate(), fit(ev)); err != nil {
		return nil, err
	}
	m := nats.NewMsg(n.Event(ev.Connection, subscription(ev), triggerd.HashID(ev.ID)))
	m.Data = ev.Payload
	h := m.Header
	h.Set(headerSpecVersion, "1.0")
	h.Set(headerID, escape(ev.ID))
	h.Set(headerType, escape(ev.Type))
	h.Set(headerSource, "/connections/"+ev.Connection+"/"+subscription(ev))
	h.Set(headerReceived, ev.Received.UTC().Format(time.RFC3339Nano))
	if !ev.Time.IsZero() {
		h.Set(headerTime, ev.Time.UTC().Format(time.RFC3339Nano))
	}
	if ev.ContentType != "" {
		h.Set(headerContentType, escape(ev.ContentType))
	}
	if len(ev.Headers) > 0 {
		b, err := json.Marshal(ev.Headers)
		if err != nil {
			return nil, fmt.Errorf("encode headers: %w", err)
		}
		h.Set(headerUpstream, string(b))
	}
	bus.SetCursor(h, ev.Cursor)
	if ev.Hops > 0 {
		h.Set(bus.HeaderHops, strconv.Itoa(ev.Hops))
	}
	if ev.Target != "" {
		h.Set(headerTarget, escape(ev.Target))
	}
	return m, nil
}

// Decode reads an event from its message. Where the payload is in a blob, blob names it and Payload is nil.
// It never panics, whatever the message holds; an error means that the message was not written by Encode.
func Decode(n bus.Names, subject string, h nats.Header, data []byte) (ev triggerd.Event, blob string, err error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 5 || tokens[0] != n.Prefix || tokens[1] != "event" {
		return ev, "", fmt.Errorf("decode event: %q is not the subject of an event", subject)
	}
	ev = triggerd.Event{Connection: tokens[2], Subscription: tokens[3], Payload: data}
	for _, f := range []struct {
		name string
		to   *string
	}{{headerID, &ev.ID}, {headerType, &ev.Type}, {headerContentType, &ev.ContentType}, {headerTarget, &ev.Target}} {
		if *f.to, err = url.PathUnescape(h.Get(f.name)); err != nil {
			return ev, "", fmt.Errorf("decode event: header %s: %w", f.name, err)
		}
	}
	if triggerd.HashID(ev.ID) != tokens[4] {
		return ev, "", fmt.Errorf("decode event: the id does not belong to the subject %q", subject)
	}
	if ev.Received, err = parseTime(h.Get(headerReceived)); err != nil {
		return ev, "", fmt.Errorf("decode event: header %s: %w", headerReceived, err)
	}
	ev.Time = ev.Received
	if s := h.Get(headerTime); s != "" {
		if ev.Time, err = parseTime(s); err != nil {
			return ev, "", fmt.Errorf("decode event: header %s: %w", headerTime, err)
		}
	}
	if s := h.Get(headerUpstream); s != "" {
		if err = json.Unmarshal([]byte(s), &ev.Headers); err != nil {
			return ev, "", fmt.Errorf("decode event: header %s: %w", headerUpstream, err)
		}
	}
	if ev.Cursor, err = bus.CursorOf(h); err != nil {
		return ev, "", fmt.Errorf("decode event: header %s: %w", bus.HeaderCursor, err)
	}
	if s := h.Get(bus.HeaderHops); s != "" {
		if ev.Hops, err = strconv.Atoi(s); err != nil || ev.Hops < 0 {
			return ev, "", fmt.Errorf("decode event: header %s: %q is not a count", bus.HeaderHops, s)
		}
	}
	if blob = h.Get(bus.HeaderBlob); blob != "" {
		ev.Payload = nil
		if ev.Large, err = strconv.ParseInt(h.Get(headerSize), 10, 64); err != nil || ev.Large < 0 {
			return ev, "", fmt.Errorf("decode event: header %s: %q is not a size", headerSize, h.Get(headerSize))
		}
	}
	return ev, blob, cmp.Or(ev.Validate(), fit(&ev))
}

// fit reports what an event holds that could not be read back: Encode refuses it, so that nothing is stored that the consumer must skip.
func fit(ev *triggerd.Event) error {
	if s := subscription(ev); len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(".*>", r) }) {
		return fmt.Errorf("%w: subscription %q cannot be part of a subject", triggerd.ErrInvalidEvent, s)
	}
	for k, v := range ev.Headers {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: header %q is not valid UTF-8", triggerd.ErrInvalidEvent, k)
		}
	}
	for _, t := range []time.Time{ev.Time, ev.Received} {
		if y := t.UTC().Year(); y < 0 || y > 9999 {
			return fmt.Errorf("%w: the year %d is out of range", triggerd.ErrInvalidEvent, y)
		}
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UTC(), err
}

func subscription(ev *triggerd.Event) string {
	if ev.Subscription == "" {
		return triggerd.DefaultSubscription
	}
	return ev.Subscription
}

// escape makes any text safe for a header line, as the CloudEvents HTTP binding does: what is not printable ASCII, and '%', is percent-encoded.
// Spaces at the ends are encoded too, because header readers trim them.
func escape(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '"' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '"' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
