package daemon

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/cursor"
	"github.com/triggerd/triggerd/inbox"
	"github.com/triggerd/triggerd/turns"
)

const (
	pruneEvery = time.Minute
	sweepEvery = time.Hour
)

// processBegan is what steps of the wall clock are measured from: also those that came before this daemon had to prune.
var processBegan = time.Now()

// housekeep bounds history (P26) until ctx ends: handled events go by age and budget, finished turns by age, blobs that nothing names after a day.
// One daemon does so at a time.
func (d *Daemon) housekeep(ctx context.Context) {
	h := d.plan.Load().config.History
	p := &inbox.Pruner{Bus: d.bus, MaxAge: time.Duration(h.Events), MaxBytes: int64(h.EventsSize), Commit: d.keepPosition, Since: processBegan}
	// A short retention is kept to its word; the usual one needs no pass more often than once a minute.
	every := min(pruneEvery, max(min(time.Duration(h.Events), time.Duration(h.Turns))/4, 250*time.Millisecond))
	prune, sweep := time.NewTicker(every), time.NewTicker(sweepEvery)
	defer prune.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-prune.C:
			if err := d.prune(ctx, p, now); err != nil && ctx.Err() == nil {
				d.log.Warn().Err(err).Msg("pruning history failed; trying again later")
			}
		case <-sweep.C:
			res, err := d.bus.SweepBlobs(ctx, bus.BlobGrace)
			if err != nil && ctx.Err() == nil {
				d.log.Warn().Err(err).Msg("sweeping blobs failed; trying again later")
			}
			if res.Deleted > 0 {
				d.log.Debug().Int("deleted", res.Deleted).Int("blobs", res.Blobs).Msg("swept blobs")
			}
		}
	}
}

func (d *Daemon) prune(ctx context.Context, p *inbox.Pruner, now time.Time) error {
	floors, err := d.floors(ctx)
	if err != nil {
		return err
	}
	paused, err := p.RunOnce(ctx, now, floors)
	if paused {
		return err
	}
	keep := time.Duration(d.plan.Load().config.History.Turns)
	if d.share != nil {
		return errors.Join(err, turns.Cut(ctx, d.bus, d.share.parts(), keep, now.Add(-keep)))
	}
	return errors.Join(err, d.engine().Expire(ctx, now.Add(-keep)))
}

// floors is up to where each connection's events are handled. A connection that was removed does not hold anything back.
func (d *Daemon) floors(ctx context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	keys, err := d.bus.ControlKeys(ctx, "version.*")
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		out[strings.TrimPrefix(key, "version.")] = math.MaxUint64
	}
	var handled map[string]uint64 // by other daemons' inboxes
	if d.share != nil {
		if handled, err = inbox.Floors(ctx, d.bus); err != nil {
			return nil, err
		}
	}
	for _, key := range d.plan.Load().connectionKeys() {
		if _, recorded := out[key]; recorded {
			out[key] = handled[key] // 0 when nobody has begun yet
		}
	}
	d.connMu.Lock()
	defer d.connMu.Unlock()
	for key, c := range d.conns {
		out[key] = c.inbox.Handled()
	}
	return out, nil
}

// keepPosition writes a position as a cursor message on behalf of the connection's source.
func (d *Daemon) keepPosition(ctx context.Context, key, subscription string, c triggerd.Cursor) error {
	owner, err := d.bus.Last(ctx, d.bus.Events, d.bus.Names.Owner(key))
	if err != nil {
		return err
	}
	var fence bus.Fence
	if owner != nil {
		fence = bus.Fence{Subject: d.bus.Names.Owner(key), Seq: owner.Sequence}
	}
	return cursor.Commit(ctx, d.bus, key, subscription, c, fence)
}
