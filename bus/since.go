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
	info, err := s.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("find messages by age: %w: %w", triggerd.ErrUnavailable, err)
	}
	batch, err := jetstreamext.GetBatch(ctx, b.JS, info.Config.Name, 1, jetstreamext.GetBatchStartTime(t))
	if err != nil {
		return 0, fmt.Errorf("find messages by age: %w: %w", triggerd.ErrUnavailable, err)
	}
	for m, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return info.State.LastSeq + 1, nil
		}
		if err != nil {
			return 0, fmt.Errorf("find messages by age: %w: %w", triggerd.ErrUnavailable, err)
		}
		return m.Sequence, nil
	}
	return 0, fmt.Errorf("find messages by age: %w: no answer", triggerd.ErrUnavailable)
}
