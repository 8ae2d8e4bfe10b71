package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/cursor"
	"github.com/triggerd/triggerd/sources"
)

// emitter stores the events of one connection. With a fence it is the connection's one owner; without, any daemon may append (webhooks, pushes).
type emitter struct {
	d     *Daemon
	key   string // the connection's first name
	fence bus.Fence

	mu    sync.Mutex
	start triggerd.Cursor // the last stored position: what the events of a page carry until its last one
}

var _ sources.Emitter = (*emitter)(nil)

// Emit implements [sources.Emitter].
func (e *emitter) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	e.complete(&ev)
	began := time.Now()
	r, err := e.d.appender.Append(ctx, ev, e.fence)
	e.d.metrics.appended(e.key, []triggerd.Receipt{r}, err, time.Since(began))
	if err == nil && r.Duplicate && ev.Cursor != nil {
		// The position was in the event that was not stored.
		err = cursor.Commit(ctx, e.d.bus, e.key, triggerd.DefaultSubscription, ev.Cursor, e.fence)
	}
	if err == nil {
		e.moved(ev.Cursor)
	}
	return r, err
}

// moved notes a stored position; nil is none.
func (e *emitter) moved(c triggerd.Cursor) {
	if c == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start = c
}

func (e *emitter) position() triggerd.Cursor {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.start
}

// EmitPage implements [sources.Emitter].
func (e *emitter) EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) ([]triggerd.Receipt, error) {
	own := make([]triggerd.Event, len(page))
	for i, ev := range page {
		e.complete(&ev)
		own[i] = ev
	}
	var rs []triggerd.Receipt
	if len(own) > 0 {
		var err error
		began := time.Now()
		rs, err = e.d.appender.AppendPage(ctx, own, e.position(), next, e.fence)
		e.d.metrics.appended(e.key, rs, err, time.Since(began))
		if err != nil {
			return nil, err
		}
	}
	if next != nil && (len(rs) == 0 || rs[len(rs)-1].Duplicate) {
		if err := cursor.Commit(ctx, e.d.bus, e.key, triggerd.DefaultSubscription, next, e.fence); err != nil {
			return nil, err
		}
	}
	e.moved(next)
	return rs, nil
}

func (e *emitter) complete(ev *triggerd.Event) {
	ev.Connection = e.key
	if ev.Received.IsZero() {
		ev.Received = time.Now().UTC()
	}
	if ev.Time.IsZero() {
		ev.Time = ev.Received
	}
}

// announce stores one of our own events for the triggers that listen to the connection "triggerd"; where none does, it costs nothing.
// id makes it safe to repeat. A failure is returned for callers that can repeat, and is logged.
func (d *Daemon) announce(ctx context.Context, typ, id string, headers map[string]string, payload any, hops int) error {
	if !d.plan.Load().listens(typ) {
		return nil
	}
	ev := triggerd.Event{
		ID: typ + "/" + id, Type: typ, ContentType: "application/json", Payload: mustJSON(payload), Headers: headers, Hops: hops,
	}
	e := emitter{d: d, key: ownConnection}
	_, err := e.Emit(ctx, ev)
	if errors.Is(err, triggerd.ErrLoop) {
		d.log.Warn().Str("event", ev.ID).Msg("own event is not raised: too many turns caused each other")
		return nil
	}
	if err != nil {
		d.log.Warn().Err(err).Str("event", ev.ID).Msg("own event is not stored yet")
	}
	return err
}
