package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Load decodes a stored event and fetches its payload from a blob where it is in one, whose name is returned as well.
func Load(ctx context.Context, b *bus.Bus, subject string, h nats.Header, data []byte, seq uint64) (triggerd.Event, string, error) {
	ev, blob, err := Decode(b.Names, subject, h, data)
	if err != nil {
		return ev, "", err
	}
	ev.Seq = seq
	if blob != "" {
		if ev.Payload, err = b.GetBlob(ctx, blob); err != nil {
			return ev, blob, err
		}
		ev.Large = 0
	}
	return ev, blob, nil
}

// Get reads one stored event by its sequence. The error is [triggerd.ErrNotFound] when it is not there (any more).
func Get(ctx context.Context, b *bus.Bus, seq uint64) (triggerd.Event, error) {
	m, err := b.At(ctx, b.Events, seq)
	if err != nil {
		return triggerd.Event{}, err
	}
	if !strings.HasPrefix(m.Subject, b.Names.Prefix+".event.") {
		return triggerd.Event{}, fmt.Errorf("sequence %d holds no event: %w", seq, triggerd.ErrNotFound)
	}
	ev, _, err := Load(ctx, b, m.Subject, m.Header, m.Data, m.Sequence)
	return ev, err
}

// Query selects stored events.
type Query struct {
	Connection string // "" = all
	Before     uint64 // only sequences below it; 0 = all
	Limit      int    // 0 = no limit
	Match      func(*triggerd.Event) bool
}

// List returns events without their payloads' blobs, newest first. It reads backwards in growing windows, so a short list of a long stream is cheap.
func List(ctx context.Context, b *bus.Bus, q Query) ([]triggerd.Event, error) {
	info, err := b.Events.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("list events: %w: %w", triggerd.ErrUnavailable, err)
	}
	filter := b.Names.AllEvents()
	if q.Connection != "" {
		filter = b.Names.EventsOf(q.Connection)
	}
	var found []triggerd.Event
	end, window := info.State.LastSeq+1, uint64(256)
	if q.Before > 0 {
		end = min(end, q.Before)
	}
	for end > info.State.FirstSeq && (q.Limit == 0 || len(found) < q.Limit) {
		start := max(info.State.FirstSeq, end-min(window, end))
		part, err := between(ctx, b, filter, start, end, q.Match)
		if err != nil {
			return nil, err
		}
		for i := len(part) - 1; i >= 0 && (q.Limit == 0 || len(found) < q.Limit); i-- {
			found = append(found, part[i])
		}
		end, window = start, min(window*4, 1<<20)
	}
	return found, nil
}

// readMax and readBytes bound one request for stored events: the client library drops what exceeds 64 MiB.
const (
	readMax   = 500
	readBytes = 8 << 20
)

// between reads the events with start <= sequence < end, oldest first.
func between(ctx context.Context, b *bus.Bus, filter string, start, end uint64, match func(*triggerd.Event) bool) ([]triggerd.Event, error) {
	var part []triggerd.Event
	for next := max(start, 1); next < end; {
		msgs, err := readFrom(ctx, b, filter, next, int(min(end-next, readMax)))
		if err != nil {
			return nil, fmt.Errorf("list events: %w: %w", triggerd.ErrUnavailable, err)
		}
		if len(msgs) == 0 {
			break
		}
		for _, m := range msgs {
			if next = m.Sequence + 1; m.Sequence >= end {
				return part, nil
			}
			ev, _, err := Decode(b.Names, m.Subject, m.Header, m.Data)
			if err != nil {
				continue // the consumer reports what it cannot read
			}
			ev.Seq = m.Sequence
			if match == nil || match(&ev) {
				part = append(part, ev)
			}
		}
	}
	return part, nil
}

// Stored reports whether an event of a connection (its first name) with this id is stored.
func Stored(ctx context.Context, b *bus.Bus, connection, id string) (bool, error) {
	m, err := b.Last(ctx, b.Events, b.Names.Event(connection, "*", triggerd.HashID(id)))
	return m != nil, err
}

// readFrom reads up to n events from a sequence on; none means that there are none.
func readFrom(ctx context.Context, b *bus.Bus, filter string, from uint64, n int) ([]*jetstream.RawStreamMsg, error) {
	batch, err := jetstreamext.GetBatch(ctx, b.JS, b.Names.Events(), n,
		jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchSubject(filter), jetstreamext.GetBatchMaxBytes(readBytes))
	if err != nil {
		return nil, err
	}
	var msgs []*jetstream.RawStreamMsg
	for m, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, m)
	}
	if len(msgs) == 0 {
		return nil, errors.New("no answer")
	}
	return msgs, nil
}

// Find resolves a reference to an event: its sequence, "<connection>/<id>", an id, or a unique prefix of either of the last two, in this order.
// Errors: [triggerd.ErrNotFound], [triggerd.ErrConflict] when several events fit (the error lists some).
func Find(ctx context.Context, b *bus.Bus, ref string) (triggerd.Event, error) {
	if seq, err := strconv.ParseUint(ref, 10, 64); err == nil {
		if ev, err := Get(ctx, b, seq); !errors.Is(err, triggerd.ErrNotFound) {
			return ev, err
		}
	}
	if connection, id, ok := strings.Cut(ref, "/"); ok && triggerd.ValidName(connection) == nil {
		fits, err := readFrom(ctx, b, b.Names.Event(connection, "*", triggerd.HashID(id)), 1, findMax)
		if err != nil || len(fits) > 0 {
			return only(ctx, b, ref, fits, err)
		}
	}
	fits, err := readFrom(ctx, b, b.Names.Event("*", "*", triggerd.HashID(ref)), 1, findMax)
	if err != nil || len(fits) > 0 {
		return only(ctx, b, ref, fits, err)
	}
	evs, err := List(ctx, b, Query{Limit: findMax, Match: func(ev *triggerd.Event) bool {
		return strings.HasPrefix(ev.ID, ref) || strings.HasPrefix(ev.Connection+"/"+ev.ID, ref)
	}})
	switch {
	case err != nil:
		return triggerd.Event{}, err
	case len(evs) == 0:
		return triggerd.Event{}, fmt.Errorf("event %q: %w", ref, triggerd.ErrNotFound)
	case len(evs) > 1:
		return triggerd.Event{}, ambiguous(ref, evs)
	}
	return Get(ctx, b, evs[0].Seq)
}

// findMax is how many events that fit a reference are looked at: enough to tell a person what there is.
const findMax = 6

// only loads the one event that fits a reference.
func only(ctx context.Context, b *bus.Bus, ref string, fits []*jetstream.RawStreamMsg, err error) (triggerd.Event, error) {
	if err != nil {
		return triggerd.Event{}, fmt.Errorf("find event %q: %w: %w", ref, triggerd.ErrUnavailable, err)
	}
	if len(fits) == 1 {
		ev, _, err := Load(ctx, b, fits[0].Subject, fits[0].Header, fits[0].Data, fits[0].Sequence)
		return ev, err
	}
	evs := make([]triggerd.Event, 0, len(fits))
	for _, m := range fits {
		if ev, _, err := Decode(b.Names, m.Subject, m.Header, m.Data); err == nil {
			ev.Seq = m.Sequence
			evs = append(evs, ev)
		}
	}
	return triggerd.Event{}, ambiguous(ref, evs)
}

func ambiguous(ref string, evs []triggerd.Event) error {
	names := make([]string, len(evs))
	for i, ev := range evs {
		names[i] = fmt.Sprintf("%s/%s (%d)", ev.Connection, ev.ID, ev.Seq)
	}
	return fmt.Errorf("%w: event %q fits %s: use the sequence", triggerd.ErrConflict, ref, strings.Join(names, ", "))
}
