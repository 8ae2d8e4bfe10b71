// Package sourcetest is what every source is tested with: an Emitter in memory that can fail on demand, and the conformance suite [Run].
package sourcetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

// Memory is an Emitter and cursor store of one connection in memory. It keeps the contract of [sources.Emitter]: duplicates by
// subscription and id, all or nothing for a page, validation as the real store does it. All methods are safe for concurrent use.
type Memory struct {
	connection string

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced on every change
	events     []triggerd.Event
	byID       map[string]int
	cursor     triggerd.Cursor
	calls      int
	duplicates []string
	failures   []failure
	fenced     bool
	maxPayload int
}

type failure struct {
	err    error
	stored bool // the event lands although the caller is told otherwise
}

// NewMemory returns an empty store for connection.
func NewMemory(connection string) *Memory {
	return &Memory{connection: connection, changed: make(chan struct{}), byID: make(map[string]int)}
}

// Emit stores ev unless its id is known or a failure is due.
func (m *Memory) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	rs, err := m.emit(ctx, []triggerd.Event{ev}, ev.Cursor)
	if err != nil {
		return triggerd.Receipt{}, err
	}
	return rs[0], nil
}

// EmitPage stores the new events of page, or none of them, and then the cursor.
func (m *Memory) EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) ([]triggerd.Receipt, error) {
	return m.emit(ctx, page, next)
}

func (m *Memory) emit(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) ([]triggerd.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	defer m.signal()
	if m.fenced {
		return nil, triggerd.ErrFenced
	}
	var fail failure
	if len(m.failures) > 0 {
		fail, m.failures = m.failures[0], m.failures[1:]
		if !fail.stored {
			return nil, fail.err
		}
	}
	page = slices.Clone(page)
	for i := range page {
		page[i].Connection = m.connection
		if page[i].Received.IsZero() {
			page[i].Received = time.Now()
		}
		if err := page[i].Validate(); err != nil {
			return nil, err
		}
		if m.maxPayload > 0 && len(page[i].Payload) > m.maxPayload {
			return nil, fmt.Errorf("%w: %d bytes, the limit is %d", triggerd.ErrTooLarge, len(page[i].Payload), m.maxPayload)
		}
	}
	receipts := make([]triggerd.Receipt, len(page))
	for i := range page {
		receipts[i] = m.store(page[i])
	}
	if next != nil {
		m.cursor = bytes.Clone(next)
	}
	return receipts, fail.err
}

func (m *Memory) store(ev triggerd.Event) triggerd.Receipt {
	key := ev.Subscription + "\x00" + ev.ID
	if _, ok := m.byID[key]; ok {
		m.duplicates = append(m.duplicates, ev.ID)
		return triggerd.Receipt{Duplicate: true}
	}
	ev.Payload = bytes.Clone(ev.Payload)
	m.events = append(m.events, ev)
	ev.Seq = uint64(len(m.events))
	m.byID[key] = len(m.events)
	return triggerd.Receipt{Seq: ev.Seq}
}

// signal wakes whoever waits. The caller holds the lock.
func (m *Memory) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// FailNext makes the next n calls fail with err; nothing is stored by them.
func (m *Memory) FailNext(n int, err error) { m.fail(n, failure{err: err}) }

// LoseAnswer makes the next n calls store what they are given and fail with err nevertheless, as when a connection breaks before the answer.
func (m *Memory) LoseAnswer(n int, err error) { m.fail(n, failure{err: err, stored: true}) }

func (m *Memory) fail(n int, f failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		m.failures = append(m.failures, f)
	}
}

// Heal forgets the failures that are still due.
func (m *Memory) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = nil
}

// Fence makes every later call fail with [triggerd.ErrFenced].
func (m *Memory) Fence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fenced = true
}

// LimitPayload refuses larger payloads with [triggerd.ErrTooLarge]; 0 allows all.
func (m *Memory) LimitPayload(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxPayload = n
}

// Events returns what was stored, in order.
func (m *Memory) Events() []triggerd.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// Duplicates returns the ids that were answered as duplicates, in order.
func (m *Memory) Duplicates() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.duplicates)
}

// Cursor returns the stored cursor.
func (m *Memory) Cursor() triggerd.Cursor {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.cursor)
}

// SetCursor stores a cursor as if a source had emitted it.
func (m *Memory) SetCursor(c triggerd.Cursor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor = bytes.Clone(c)
	m.signal()
}

// Calls counts calls of Emit and EmitPage, failed ones included.
func (m *Memory) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Wait blocks until n events are stored or ctx ends.
func (m *Memory) Wait(ctx context.Context, n int) error {
	return m.waitFor(ctx, fmt.Sprintf("%d events", n), func() bool { return len(m.events) >= n })
}

// WaitCursor blocks until a cursor is stored or ctx ends.
func (m *Memory) WaitCursor(ctx context.Context) error {
	return m.waitFor(ctx, "a cursor", func() bool { return m.cursor != nil })
}

// WaitNewCursor blocks until a cursor other than old is stored or ctx ends.
func (m *Memory) WaitNewCursor(ctx context.Context, old triggerd.Cursor) error {
	return m.waitFor(ctx, "a new cursor", func() bool { return m.cursor != nil && !bytes.Equal(m.cursor, old) })
}

// WaitCalls blocks until n calls were made or ctx ends.
func (m *Memory) WaitCalls(ctx context.Context, n int) error {
	return m.waitFor(ctx, fmt.Sprintf("%d calls", n), func() bool { return m.calls >= n })
}

// WaitUntil blocks until cond holds for what is stored, or ctx ends. cond must not call Memory's methods nor change the events.
func (m *Memory) WaitUntil(ctx context.Context, what string, cond func(events []triggerd.Event) bool) error {
	return m.waitFor(ctx, what, func() bool { return cond(m.events) })
}

// waitFor is WaitUntil over everything; cond runs under the lock.
func (m *Memory) waitFor(ctx context.Context, what string, cond func() bool) error {
	for {
		m.mu.Lock()
		ok, changed, have := cond(), m.changed, len(m.events)
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s (have %d events): %w", what, have, ctx.Err())
		}
	}
}

// Runtime is what a source over this store is run with: the stored cursor and a status of its own.
func (m *Memory) Runtime() sources.Runtime {
	return sources.Runtime{
		Connection: m.connection,
		Cursor:     m.Cursor(),
		Emit:       m,
		Status:     new(sources.Status),
		Log:        zerolog.Nop(),
	}
}
