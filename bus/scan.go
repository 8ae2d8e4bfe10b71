package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// scanQuiet is how long a scan waits for a message before it asks whether there is one: what it waits for may have been removed.
	scanQuiet = 500 * time.Millisecond
	// scanLast is for a message that was sent before the answer that none is left.
	scanLast = 20 * time.Millisecond
)

// ScanOptions select what [Bus.Scan] reads.
type ScanOptions struct {
	Filter      string // subject; "" = all
	From        uint64 // first sequence; 0 = the first there is. Not with LastOnly
	LastOnly    bool   // only the newest message of each subject
	HeadersOnly bool
}

// Scan hands each message of the stream to f, in order, and returns when it has reached the end or f has failed. What is stored meanwhile
// is included; with LastOnly, f may be handed a message and later the one that has replaced it.
func (b *Bus) Scan(ctx context.Context, stream string, o ScanOptions, f func(jetstream.Msg) error) error {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: o.HeadersOnly, DeliverPolicy: jetstream.DeliverAllPolicy}
	if o.Filter != "" {
		cfg.FilterSubjects = []string{o.Filter}
	}
	switch {
	case o.LastOnly:
		cfg.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
	case o.From > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, o.From
	}
	s := scan{bus: b, stream: stream, cfg: cfg, f: f}
	for quiet := scanQuiet; ; quiet = min(2*quiet, 16*scanQuiet) {
		if err := s.run(ctx, quiet); !errors.Is(err, errStalled) {
			return err
		}
	}
}

// errStalled is a consumer of the newest messages that does not get on: the server has listed them at its start, and waits
// for a new message at each of them that was removed since.
var errStalled = errors.New("scan stalled")

type scan struct {
	bus    *Bus
	stream string
	cfg    jetstream.OrderedConsumerConfig
	f      func(jetstream.Msg) error
	done   uint64 // sequence up to which f has seen everything
}

// run reads to the end, or returns errStalled when there is something to read that does not come for the time given.
func (s *scan) run(ctx context.Context, quiet time.Duration) error {
	c, err := Insist(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.bus.JS.OrderedConsumer(ctx, s.stream, s.cfg)
	})
	if err != nil {
		return s.failed(err)
	}
	defer s.bus.dropConsumer(ctx, s.stream, c)
	if left, err := pending(ctx, c); err != nil || left == 0 {
		return s.failed(err)
	}
	it, err := c.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return s.failed(err)
	}
	defer it.Stop()
	wait := quiet
	for {
		m, err := it.Next(jetstream.NextMaxWait(wait))
		switch {
		case ctx.Err() != nil:
			return s.failed(context.Cause(ctx))
		case err == nil:
			wait = quiet
		case !errors.Is(err, nats.ErrTimeout):
			return s.failed(err)
		case wait == scanLast:
			return nil
		default:
			left, err := pending(ctx, c)
			switch {
			case err != nil:
				return s.failed(err)
			case left == 0:
				wait = scanLast
			case s.cfg.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy:
				return errStalled
			}
			continue
		}
		if last, err := s.hand(m); err != nil || last {
			return err
		}
	}
}

// hand passes m on and reports whether it was the last one.
func (s *scan) hand(m jetstream.Msg) (last bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return false, s.failed(err)
	}
	if seq := meta.Sequence.Stream; seq > s.done {
		s.done = seq
		if err := s.f(m); err != nil {
			return false, err
		}
	}
	return meta.NumPending == 0, nil
}

func (s *scan) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("scan %s: %w", s.stream, err)
}

// dropConsumer spares the server the five minutes after which it would forget a scan by itself.
func (b *Bus) dropConsumer(ctx context.Context, stream string, c jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if info := c.CachedInfo(); info != nil {
		_ = b.JS.DeleteConsumer(ctx, stream, info.Name)
	}
}

func pending(ctx context.Context, c jetstream.Consumer) (uint64, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.NumPending, nil
}
