package natspush

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

// pushed makes the event of a message from the stream. Its id is ce-id, else Nats-Msg-Id, else its place in the stream together with the
// time it was stored, because a stream that was made anew counts from 1 again.
func (s *Source) pushed(m jetstream.Msg) (triggerd.Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return triggerd.Event{}, fmt.Errorf("%w: message without a place in the stream: %w", triggerd.ErrInvalidEvent, err)
	}
	ev, err := event(strings.TrimPrefix(m.Subject(), s.o.Prefix), m.Headers(), m.Data())
	if ev.ID == "" {
		ev.ID = strconv.FormatUint(meta.Sequence.Stream, 10) + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
	}
	if ev.Time.IsZero() {
		ev.Time = meta.Timestamp.UTC()
	}
	return ev, err
}

// event reads what a message says about itself; ID and Time stay empty where it does not. Headers are found whatever their case.
func event(typ string, header nats.Header, data []byte) (triggerd.Event, error) {
	ev := triggerd.Event{
		ID:          get(header, "ce-id", "nats-msg-id"),
		Type:        cmp.Or(get(header, "ce-type"), typ),
		ContentType: strings.ToValidUTF8(get(header, "content-type", "ce-datacontenttype"), "\uFFFD"),
		Payload:     data,
	}
	if t, err := time.Parse(time.RFC3339Nano, get(header, "ce-time")); err == nil {
		ev.Time = t.UTC()
	}
	if err := sources.CheckID(ev.ID); err != nil {
		return ev, err
	}
	if err := sources.CheckType(ev.Type); err != nil {
		return ev, err
	}
	var err error
	if ev.Hops, err = sources.ParseHops(get(header, "triggerd-hops")); err != nil {
		return ev, err
	}
	ev.Headers = sources.KeepHeaders(header, drop)
	return ev, nil
}

// drop leaves out what is the server's own, and credentials.
func drop(name string) bool {
	switch name {
	case "authorization", "cookie", "proxy-authorization":
		return true
	}
	return strings.HasPrefix(name, "nats-")
}

// get returns the first value of the first of these headers that is there and not empty. Names that differ in case only, of which
// NATS allows several, count in their order.
func get(header nats.Header, names ...string) string {
	for _, want := range names {
		found, value := "", ""
		for name, values := range header {
			if len(values) > 0 && values[0] != "" && strings.EqualFold(name, want) && (found == "" || name < found) {
				found, value = name, values[0]
			}
		}
		if value != "" {
			return value
		}
	}
	return ""
}
