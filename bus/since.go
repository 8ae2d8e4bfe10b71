package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/triggerd/triggerd"
)

// FirstSince is the sequence of the first message that was stored at t or later; one past the last when there is none.
func (b *Bus) FirstSince(ctx context.Context, s jetstream.Stream, t time.Time) (uint64, error) {
	return b.first(ctx, s, jetstreamext.GetBatchStartTime(t))
}

// FirstFrom is the sequence of the first message from a sequence on whose subject matches; one past the last when there is none.
func (b *Bus) FirstFrom(ctx context.Context, s jetstream.Stream, from uint64, filter string) (uint64, error) {
	return b.first(ctx, s, jetstreamext.GetBatchSeq(max(from, 1)), jetstreamext.GetBatchSubject(filter))
}

func (b *Bus) first(ctx context.Context, s jetstream.Stream, opts ...jetstreamext.GetBatchOpt) (uint64, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("find a message: %w: %w", triggerd.ErrUnavailable, err)
	}
	batch, err := jetstreamext.GetBatch(ctx, b.JS, info.Config.Name, 1, opts...)
	if err != nil {
		return 0, fmt.Errorf("find a message: %w: %w", triggerd.ErrUnavailable, err)
	}
	for m, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return info.State.LastSeq + 1, nil
		}
		if err != nil {
			return 0, fmt.Errorf("find a message: %w: %w", triggerd.ErrUnavailable, err)
		}
		return m.Sequence, nil
	}
	return 0, fmt.Errorf("find a message: %w: no answer", triggerd.ErrUnavailable)
}
