package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// reader names one JetStream consumer of a connection's events. Each ownership epoch has its own, and within it each start: a consumer that
// goes on after a failure would deliver later events before the ones that were on their way, and one acknowledgement stands for all before it.
type reader struct{ epoch, start uint64 }

// Names of connections hold no '=', so no connection's readers look like another's.
func readerPrefix(connection string) string { return "inbox=" + connection + "=" }

func (r reader) name(connection string) string {
	return readerPrefix(connection) + strconv.FormatUint(r.epoch, 10) + "=" + strconv.FormatUint(r.start, 10)
}

func parseReader(connection, name string) (reader, bool) {
	rest, ok := strings.CutPrefix(name, readerPrefix(connection))
	if !ok {
		return reader{}, false
	}
	epoch, start, _ := strings.Cut(rest, "=")
	e, err := strconv.ParseUint(epoch, 10, 64)
	s, serr := strconv.ParseUint(start, 10, 64)
	return reader{epoch: e, start: s}, err == nil && serr == nil
}

// takeOver creates a fresh reader where the earlier ones had acknowledged, then deletes those, which ends their pulls.
// The error is [triggerd.ErrFenced] when a later owner has done so already.
func (c *Consumer) takeOver(ctx context.Context) (jetstream.Consumer, error) {
	epoch, err := strconv.ParseUint(c.Epoch, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("epoch of the inbox: %w", err)
	}
	older, err := bus.Insist(ctx, c.readers)
	if err != nil {
		return nil, err
	}
	mine, floor := reader{epoch: epoch, start: 1}, c.handled.Load()
	for r, info := range older {
		if r.epoch > epoch {
			return nil, fmt.Errorf("inbox of %s: %w", c.Connection, triggerd.ErrFenced)
		}
		if r.epoch == epoch {
			mine.start = max(mine.start, r.start+1)
		}
		floor = max(floor, acknowledged(info))
	}
	name := mine.name(c.Connection)
	cons, err := bus.Insist(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return c.Bus.Events.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable:       name,
			FilterSubject: c.Bus.Names.EventsOf(c.Connection),
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   floor + 1,
			// Events are handled strictly in order, so one acknowledgement stands for all before it.
			AckPolicy:     jetstream.AckAllPolicy,
			AckWait:       ackWait,
			MaxAckPending: 2 * fetchMax,
			MaxDeliver:    -1,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer %s: %w", name, err)
	}
	for r := range older {
		_, err := bus.Insist(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.Bus.Events.DeleteConsumer(ctx, r.name(c.Connection))
		})
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, fmt.Errorf("delete consumer %s: %w", r.name(c.Connection), err)
		}
	}
	c.raise(floor)
	return cons, nil
}

// readers are the connection's readers as they are now.
func (c *Consumer) readers(ctx context.Context) (map[reader]*jetstream.ConsumerInfo, error) {
	found := map[reader]*jetstream.ConsumerInfo{}
	names := c.Bus.Events.ConsumerNames(ctx)
	for n := range names.Name() {
		r, ok := parseReader(c.Connection, n)
		if !ok {
			continue
		}
		cons, err := c.Bus.Events.Consumer(ctx, n)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up consumer %s: %w", n, err)
		}
		found[r] = cons.CachedInfo()
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	return found, nil
}

// Floors is up to where the events of each connection have surely opened their turns, as the server knows it of the connections' readers.
// It may lag behind; a connection that was never read is not there.
func Floors(ctx context.Context, b *bus.Bus) (map[string]uint64, error) {
	out := map[string]uint64{}
	list := b.Events.ListConsumers(ctx)
	for info := range list.Info() {
		rest, ok := strings.CutPrefix(info.Name, "inbox=")
		connection, _, named := strings.Cut(rest, "=")
		if ok && named {
			out[connection] = max(out[connection], acknowledged(info))
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list consumers: %w: %w", triggerd.ErrUnavailable, err)
	}
	return out, nil
}

// acknowledged is up to where a reader, and those before it, had got to.
func acknowledged(info *jetstream.ConsumerInfo) uint64 {
	floor := info.AckFloor.Stream
	if first := info.Config.OptStartSeq; first > 0 {
		floor = max(floor, first-1) // where it started is where the one before it had got to
	}
	return floor
}
