package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followBeat is how soon a reader is missed that went away with a server, after two of them. It costs one message each.
	followBeat = time.Second
	// followPause is the pause before a broken reader is made again.
	followPause = 100 * time.Millisecond
	// followAhead and followBytes bound what is on its way to a reader: a server closes the connection of a client that is more than 64 MiB behind.
	followAhead = 500
	followBytes = 8 << 20
	// followQuiet is after how long without a message a reader asks whether one got lost on its way.
	followQuiet = 5 * time.Second
)

var (
	errGap         = errors.New("a message got lost on its way")
	errReconnected = errors.New("the connection was lost")
)

// Follow hands each message of the stream that matches a filter to f, in order, from a sequence on, those to come included, until ctx ends.
// A reader that breaks, with its server or its leader, is made again where it was. It returns nil when ctx ends, or f's error.
//
// The client library's ordered consumer would do for the usual case. But it goes on after a reconnect, when what was on its way is lost and nobody
// knows before the next message comes, and while it makes itself anew, in steps of up to ten seconds, it heeds no context.
func (b *Bus) Follow(ctx context.Context, stream string, filters []string, from uint64, f func(jetstream.Msg) error) error {
	s := follower{bus: b, stream: stream, filters: filters, f: f, quiet: followQuiet, done: from - min(from, 1)}
	for {
		broken, err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !broken {
			return err
		}
		b.health.note(b.log, fmt.Errorf("follow %s: %w", stream, err), "a reader broke; making it again")
		Pause(ctx, followPause)
	}
}

type follower struct {
	bus     *Bus
	stream  string
	filters []string
	f       func(jetstream.Msg) error
	quiet   time.Duration
	done    uint64 // sequence up to which f has seen everything
	// Of the present consumer, whose messages are numbered without gaps:
	delivered uint64
}

// follow reads until ctx ends, f fails, or the consumer breaks.
func (s *follower) follow(ctx context.Context) (broken bool, err error) {
	read, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer s.bus.onReconnect(read, func() { stop(errReconnected) })()
	c, err := Insist(read, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.bus.JS.CreateConsumer(ctx, s.stream, jetstream.ConsumerConfig{
			FilterSubjects: s.filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.done + 1,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
		})
	})
	if err != nil {
		return true, err
	}
	defer func() {
		if s.bus.NC.IsConnected() { // else the server forgets it in a minute
			s.bus.dropConsumer(ctx, s.stream, c)
		}
	}()
	it, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(followAhead, followBytes), jetstream.PullHeartbeat(followBeat))
	if err != nil {
		return true, err
	}
	defer it.Stop()
	s.delivered = 0
	for lost := false; ; {
		m, err := s.next(read, it)
		switch {
		case err == nil:
			lost = false
		case read.Err() != nil:
			return true, context.Cause(read)
		case !errors.Is(err, context.DeadlineExceeded):
			return true, err
		case lost:
			return true, errGap
		default:
			if lost, err = s.behind(read, c); err != nil {
				return true, err
			}
			continue
		}
		if broken, err := s.hand(m); err != nil {
			return broken, err
		}
	}
}

func (s *follower) next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.quiet)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}

// behind reports whether the server has sent more than has come, or has more to send.
func (s *follower) behind(ctx context.Context, c jetstream.Consumer) (bool, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return false, err
	}
	return info.Delivered.Consumer > s.delivered || info.NumPending > 0, nil
}

func (s *follower) hand(m jetstream.Msg) (broken bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return true, err
	}
	if meta.Sequence.Consumer != s.delivered+1 {
		return true, errGap
	}
	s.delivered++
	if err := s.f(m); err != nil {
		return false, fmt.Errorf("follow %s: %w", s.stream, err)
	}
	s.done = meta.Sequence.Stream
	return false, nil
}

// onReconnect calls f when the connection is lost, once, unless ctx or the returned function ends that first.
func (b *Bus) onReconnect(ctx context.Context, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	lost := b.NC.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer b.NC.RemoveStatusListener(lost)
		select {
		case <-lost:
			f()
		case <-ctx.Done():
		}
	}()
	return func() { cancel(); <-ended }
}

// ControlChange is a key of the bucket CONTROL as it is now.
type ControlChange struct {
	Key      string
	Value    []byte
	Revision uint64
	Gone     bool // it was deleted
	Current  bool // nothing else was stored when the server sent this
}

// FollowControl hands the keys that match one of the patterns to f, first as they are, then each change, in order, until ctx ends. Unlike the client
// library's watch it goes on at once after the connection, a leader or the reader's server was lost.
func (b *Bus) FollowControl(ctx context.Context, patterns []string, f func(ControlChange)) {
	prefix := "$KV." + b.Names.Control() + "."
	filters := make([]string, len(patterns))
	for i, p := range patterns {
		filters[i] = prefix + p
	}
	// Each key has one message, its last, so reading from the beginning is reading what is there.
	_ = b.Follow(ctx, "KV_"+b.Names.Control(), filters, 1, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		f(ControlChange{
			Key: strings.TrimPrefix(m.Subject(), prefix), Value: m.Data(), Revision: meta.Sequence.Stream, Gone: gone(m.Headers()),
			Current: meta.NumPending == 0,
		})
		return nil
	})
}

// gone reports whether a message of a bucket says that its key is deleted.
func gone(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get("Nats-Marker-Reason") != ""
}
