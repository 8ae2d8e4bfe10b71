// Package cursor keeps a source's position: stored with the event that carries it, or alone when it moved without one, and fenced
// so that only a connection's present owner can move it.
package cursor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Owner is what a fence message says about who wrote it.
type Owner struct {
	Daemon string    `json:"daemon"`
	Epoch  uint64    `json:"epoch"`
	Since  time.Time `json:"since"`
}

// Acquire writes the connection's fence and returns it. From then on every append or commit with an older fence is refused.
// It blocks until the fence is durable. After an error nobody may hold the fence: acquire again.
func Acquire(ctx context.Context, b *bus.Bus, connection string, o Owner) (bus.Fence, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return bus.Fence{}, fmt.Errorf("encode owner: %w", err)
	}
	m := nats.NewMsg(b.Names.Owner(connection))
	m.Data = data
	m.Header.Set(bus.HeaderRollup, bus.RollupSubject)
	m.Header.Set(bus.HeaderTTL, bus.TTLNever)
	seq, err := b.Publish(ctx, m)
	if err != nil {
		return bus.Fence{}, fmt.Errorf("take over connection %s: %w", connection, err)
	}
	return bus.Fence{Subject: m.Subject, Seq: seq}, b.Sync(ctx)
}

// Load reads the position of a subscription: the newer of its last event's and its cursor message's. Nil means that there is none.
// An event without a position says nothing about it: the cursor message counts then, which at worst repeats events that are known.
func Load(ctx context.Context, b *bus.Bus, connection, subscription string) (triggerd.Cursor, error) {
	event, err := b.Last(ctx, b.Events, b.Names.EventsOfSubscription(connection, subscription))
	if err != nil {
		return nil, fmt.Errorf("load position of %s: %w", connection, err)
	}
	moved, err := b.Last(ctx, b.Events, b.Names.Cursor(connection, subscription))
	if err != nil {
		return nil, fmt.Errorf("load position of %s: %w", connection, err)
	}
	if event != nil && (moved == nil || event.Sequence > moved.Sequence) {
		if c, err := bus.CursorOf(event.Header); c != nil || err != nil {
			return c, err
		}
	}
	if moved == nil {
		return nil, nil
	}
	return bus.CursorOf(moved.Header)
}

// Commit stores a position that moved without an event, and blocks until it is durable. It is safe to repeat.
//
// Errors: [triggerd.ErrFenced] when another owner has taken over; [triggerd.ErrTooLarge] for a position that no message can hold;
// [triggerd.ErrUnavailable] asks for a repeat.
func Commit(ctx context.Context, b *bus.Bus, connection, subscription string, c triggerd.Cursor, fence bus.Fence) error {
	m := nats.NewMsg(b.Names.Cursor(connection, subscription))
	bus.SetCursor(m.Header, c)
	m.Header.Set(bus.HeaderRollup, bus.RollupSubject)
	m.Header.Set(bus.HeaderTTL, bus.TTLNever)
	fence.Apply(m)
	_, err := b.Publish(ctx, m)
	for errors.Is(err, bus.ErrRetryNow) && ctx.Err() == nil {
		_, err = b.Publish(ctx, m)
	}
	switch {
	case errors.Is(err, bus.ErrWrongSequence):
		// Writing a position again does no harm, so unlike an event's our own retry is never refused: only a newer owner explains this.
		return fmt.Errorf("commit position of %s: %w", connection, triggerd.ErrFenced)
	case errors.Is(err, bus.ErrRetryNow):
		return fmt.Errorf("commit position of %s: %w: %w", connection, triggerd.ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("commit position of %s: %w", connection, err)
	}
	return b.Sync(ctx)
}
