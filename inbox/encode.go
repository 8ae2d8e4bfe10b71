package inbox

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
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
	headerReceived    = "Triggerd-Received" // left out where it is ce-time
	headerUpstream    = "Triggerd-Headers"  // the source's own headers: name=value&name=value, escaped
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
	happened := ev.Time
	if happened.IsZero() {
		happened = ev.Received
	}
	h.Set(headerTime, happened.UTC().Format(time.RFC3339Nano))
	if !happened.Equal(ev.Received) {
		h.Set(headerReceived, ev.Received.UTC().Format(time.RFC3339Nano))
	}
	if ev.ContentType != "" {
		h.Set(headerContentType, escape(ev.ContentType))
	}
	if len(ev.Headers) > 0 {
		h.Set(headerUpstream, joinHeaders(ev.Headers))
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
	if ev.Time, err = parseTime(h.Get(headerTime)); err != nil {
		return ev, "", fmt.Errorf("decode event: header %s: %w", headerTime, err)
	}
	ev.Received = ev.Time
	if s := h.Get(headerReceived); s != "" {
		if ev.Received, err = parseTime(s); err != nil {
			return ev, "", fmt.Errorf("decode event: header %s: %w", headerReceived, err)
		}
	}
	if s := h.Get(headerUpstream); s != "" {
		if ev.Headers, err = splitHeaders(s); err != nil {
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

// joinHeaders writes headers in the order of their names, so that equal ones look equal.
func joinHeaders(headers map[string]string) string {
	var b strings.Builder
	b.Grow(256)
	for i, k := range slices.Sorted(maps.Keys(headers)) {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(escapeAlso(k, "&="))
		b.WriteByte('=')
		b.WriteString(escapeAlso(headers[k], "&"))
	}
	return b.String()
}

func splitHeaders(s string) (map[string]string, error) {
	out := make(map[string]string, 8)
	for pair := range strings.SplitSeq(s, "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not name=value", pair)
		}
		k, err := url.PathUnescape(k)
		if err != nil {
			return nil, err
		}
		if out[k], err = url.PathUnescape(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// escape makes any text safe for a header line, as the CloudEvents HTTP binding does: what is not printable ASCII, and '%', is percent-encoded.
// Spaces at the ends are encoded too, because header readers trim them.
func escape(s string) string { return escapeAlso(s, "") }

func escapeAlso(s, also string) string {
	escaped := func(c byte) bool {
		return c <= ' ' || c >= 0x7f || c == '%' || c == '"' || also != "" && strings.IndexByte(also, c) >= 0
	}
	n := 0
	for i := range len(s) {
		if escaped(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; escaped(c) {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

const hex = "0123456789ABCDEF"
