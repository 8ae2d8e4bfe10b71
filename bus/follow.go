package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followBeat is how soon a reader is missed that went away with a server, after two of them. It costs one message each.
	followBeat = time.Second
	// followPause is the pause before a broken reader is made again.
	followPause = 100 * time.Millisecond
)

// Follow hands each message of the stream that matches a filter to f, in order, from a sequence on, those to come included, until ctx ends.
// A reader that breaks, with its server or its leader, is made again where it was. It returns nil when ctx ends, or f's error.
func (b *Bus) Follow(ctx context.Context, stream string, filters []string, from uint64, f func(jetstream.Msg) error) error {
	s := scan{bus: b, stream: stream, f: f, done: from - min(from, 1)}
	for {
		s.cfg = jetstream.OrderedConsumerConfig{
			FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.done + 1, InactiveThreshold: time.Minute,
		}
		broken, err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !broken {
			return err
		}
		b.health.note(b.log, err, "a reader of "+stream+" broke; making it again")
		Pause(ctx, followPause)
	}
}

// follow reads until ctx ends, f fails, or the consumer breaks.
func (s *scan) follow(ctx context.Context) (broken bool, err error) {
	c, err := s.bus.JS.OrderedConsumer(ctx, s.stream, s.cfg)
	if err != nil {
		return true, s.failed(err)
	}
	defer s.bus.dropConsumer(ctx, s.stream, c)
	it, err := c.Messages(jetstream.PullMaxMessages(followAhead), jetstream.PullHeartbeat(followBeat))
	if err != nil {
		return true, s.failed(err)
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return true, s.failed(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return true, s.failed(err)
		}
		if meta.Sequence.Stream <= s.done {
			continue
		}
		if err := s.f(m); err != nil {
			return false, fmt.Errorf("follow %s: %w", s.stream, err)
		}
		s.done = meta.Sequence.Stream
	}
}

// followAhead bounds the messages that are on their way to a reader.
const followAhead = 500
