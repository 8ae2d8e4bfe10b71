package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/inbox"
)

// Backfill implements [console.Backend]. Any daemon may append a schedule's past slots: their ids make a second append a duplicate.
func (d *Daemon) Backfill(ctx context.Context, r console.BackfillRequest) (console.BackfillResult, error) {
	p := d.plan.Load()
	c, ok := p.config.Connections[r.Connection]
	switch {
	case !ok:
		return console.BackfillResult{}, fmt.Errorf("connection %q: %w", r.Connection, triggerd.ErrNotFound)
	case c.Cron == nil:
		return console.BackfillResult{}, fmt.Errorf("%w: connection %q is no schedule", triggerd.ErrConflict, r.Connection)
	case r.To.After(time.Now()):
		return console.BackfillResult{}, fmt.Errorf("%w: to is in the future: those slots fire by themselves", console.ErrBadRequest)
	}
	s, err := c.Cron.Build()
	if err != nil {
		return console.BackfillResult{}, err
	}
	slots, err := cron.Slots(s, r.From, r.To, cron.BackfillMax)
	if err != nil {
		return console.BackfillResult{}, fmt.Errorf("%w: %w", console.ErrBadRequest, err)
	}
	out := console.BackfillResult{}
	if !r.DryRun {
		out.Batch = ulid.Make().String()
	}
	key := p.keyOf[r.Connection]
	for _, slot := range slots {
		ev, err := cron.Backfill(s, slot, out.Batch, r.Again && !r.DryRun)
		if err != nil {
			return out, err
		}
		row := console.BackfilledSlot{Local: slot.Format(time.RFC3339), UTC: slot.UTC(), Event: r.Connection + "/" + ev.ID}
		if row.State, err = d.backfill(ctx, key, ev, r); err != nil {
			return out, fmt.Errorf("after %d of %d slots: %w", len(out.Slots), len(slots), err)
		}
		out.Slots = append(out.Slots, row)
	}
	return out, nil
}

// backfill stores one event, unless it is only asked what would become of it.
func (d *Daemon) backfill(ctx context.Context, key string, ev triggerd.Event, r console.BackfillRequest) (state string, err error) {
	if r.DryRun {
		if r.Again {
			return console.SlotDue, nil
		}
		stored, err := inbox.Stored(ctx, d.bus, key, ev.ID)
		if stored {
			return console.SlotFired, err
		}
		return console.SlotDue, err
	}
	rec, err := (&emitter{d: d, key: key}).Emit(ctx, ev)
	if err == nil && rec.Duplicate {
		return console.SlotFired, nil
	}
	if err == nil {
		d.metrics.slotsOf(key)(cron.SlotBackfilled, 1)
	}
	return console.SlotBackfilled, err
}
