package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

const (
	// maxPage is JetStream's limit on the messages of an atomic batch.
	maxPage = 1000
	// commitTimeout bounds one try of a batch, so that a caller who has more time learns what became of it.
	commitTimeout = 5 * time.Second
)

// AppendPage stores a page of events in order, in atomic batches of at most 1000, so that a crash leaves no half batch and one write carries the position next.
// Events that are stored already are left out and marked duplicate, as are repeats within a batch. start is the position before the page:
// every event but the last carries it, so that a page that was stored in part is read again.
// The caller writes next as a cursor message when the last event is a duplicate. Errors are those of [Appender.Append].
func (a *Appender) AppendPage(ctx context.Context, page []triggerd.Event, start, next triggerd.Cursor, fence bus.Fence) ([]triggerd.Receipt, error) {
	receipts := make([]triggerd.Receipt, 0, len(page))
	for len(page) > 0 {
		n := min(len(page), maxPage)
		last := start
		if n == len(page) && next != nil {
			last = next
		}
		rs, err := a.appendBatch(ctx, page[:n], start, last, fence)
		if err != nil {
			return nil, err
		}
		receipts, page = append(receipts, rs...), page[n:]
	}
	if err := a.bus.Sync(ctx); err != nil {
		return nil, err
	}
	return receipts, nil
}

func (a *Appender) appendBatch(ctx context.Context, page []triggerd.Event, start, last triggerd.Cursor, fence bus.Fence) ([]triggerd.Receipt, error) {
	msgs := make([]*nats.Msg, len(page))
	for i := range page {
		ev := page[i]
		if ev.Cursor = start; i == len(page)-1 {
			ev.Cursor = last
		}
		m, err := a.prepare(ctx, &ev, fence)
		if err != nil {
			return nil, fmt.Errorf("event %d of the page: %w", i, err)
		}
		msgs[i] = m
	}
	receipts := make([]triggerd.Receipt, len(page))
	if err := a.commitAll(ctx, msgs, receipts, fence); err != nil {
		return nil, err
	}
	for i, m := range msgs {
		a.dropBlob(ctx, m, receipts[i])
	}
	return receipts, nil
}

// commitAll stores what is not stored yet in one atomic batch. One duplicate refuses a whole batch without naming itself,
// so after a refusal each event is looked up, and what is left is sent again.
func (a *Appender) commitAll(ctx context.Context, msgs []*nats.Msg, receipts []triggerd.Receipt, fence bus.Fence) error {
	open := dropRepeats(msgs, receipts)
	for len(open) > 1 {
		seq, err := a.commit(ctx, msgs, open)
		if err == nil {
			for i, at := range open {
				receipts[at].Seq = seq - uint64(len(open)-1-i)
			}
			return nil
		}
		if errors.Is(err, triggerd.ErrTooLarge) {
			return fmt.Errorf("append page: %w", err)
		}
		rest, lerr := a.unstored(ctx, msgs, open, receipts)
		switch {
		case lerr != nil:
			return lerr
		case len(rest) < len(open):
		case errors.Is(err, bus.ErrWrongSequence):
			return a.checkFence(ctx, fence)
		case !bus.Pause(ctx, retryPause):
			return fmt.Errorf("append page: %w: %w", triggerd.ErrUnavailable, err)
		}
		open = rest
	}
	for _, at := range open {
		r, err := a.publish(ctx, msgs[at], fence, false)
		if err != nil {
			return err
		}
		receipts[at] = r
	}
	return nil
}

// dropRepeats marks events that stand twice in the page as duplicates and returns the positions of the others.
func dropRepeats(msgs []*nats.Msg, receipts []triggerd.Receipt) []int {
	seen := make(map[string]bool, len(msgs))
	open := make([]int, 0, len(msgs))
	for i, m := range msgs {
		if seen[m.Subject] {
			receipts[i].Duplicate = true
			continue
		}
		seen[m.Subject] = true
		open = append(open, i)
	}
	return open
}

func (a *Appender) commit(ctx context.Context, msgs []*nats.Msg, open []int) (uint64, error) {
	sent := time.Now()
	seq, err := a.sendBatch(ctx, msgs, open)
	return seq, a.bus.Answered(msgs[open[0]].Subject, sent, err)
}

func (a *Appender) sendBatch(ctx context.Context, msgs []*nats.Msg, open []int) (uint64, error) {
	batch, err := jetstreamext.NewBatchPublisher(a.bus.JS,
		jetstreamext.BatchFlowControl{AckFirst: true, AckTimeout: bus.AppendTimeout})
	if err != nil {
		return 0, err
	}
	last := len(open) - 1
	for _, at := range open[:last] {
		if err := batch.AddMsg(cloneMsg(msgs[at])); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	ack, err := batch.CommitMsg(ctx, cloneMsg(msgs[open[last]]))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// cloneMsg keeps the batch's own headers out of a message that may be published again.
func cloneMsg(m *nats.Msg) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Data: m.Data, Header: maps.Clone(m.Header)}
}

// unstored looks up each event of a refused batch: what is stored gets its receipt, the positions of the rest are returned.
func (a *Appender) unstored(ctx context.Context, msgs []*nats.Msg, open []int, receipts []triggerd.Receipt) ([]int, error) {
	var rest []int
	for _, at := range open {
		r, stored, err := a.stored(ctx, msgs[at])
		switch {
		case err != nil:
			return nil, err
		case stored:
			receipts[at] = r
		default:
			rest = append(rest, at)
		}
	}
	return rest, nil
}
