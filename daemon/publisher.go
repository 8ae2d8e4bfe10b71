package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// flushTimeout bounds the wait for the server's answer to a flush.
const flushTimeout = 10 * time.Second

// publisher sends what publish actions render. It asks for the bus when it is used, because actions are built before it is open.
type publisher struct{ d *Daemon }

// Publish sends m and returns when the server has it.
func (p publisher) Publish(ctx context.Context, m *nats.Msg) error {
	if err := p.d.bus.NC.PublishMsg(m); err != nil {
		return err
	}
	return p.d.flusher.flush(ctx, p.d.bus.NC)
}

// PublishJS returns when a stream has acknowledged m.
func (p publisher) PublishJS(ctx context.Context, m *nats.Msg) error {
	_, err := p.d.bus.JS.PublishMsg(ctx, m)
	return err
}

// flusher lets one flush of the connection stand for every message that was sent before it began.
type flusher struct {
	mu      sync.Mutex
	next    *flight // the flush that has not begun
	running bool
}

type flight struct {
	done chan struct{}
	err  error
}

// flush blocks until the server has everything that was sent before the call.
func (f *flusher) flush(ctx context.Context, nc *nats.Conn) error {
	f.mu.Lock()
	if f.next == nil {
		f.next = &flight{done: make(chan struct{})}
	}
	fl := f.next
	if !f.running {
		f.running = true
		go f.run(nc)
	}
	f.mu.Unlock()
	select {
	case <-fl.done:
		return fl.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run flushes until nobody waits.
func (f *flusher) run(nc *nats.Conn) {
	for {
		f.mu.Lock()
		fl := f.next
		f.next = nil
		f.running = fl != nil
		f.mu.Unlock()
		if fl == nil {
			return
		}
		fl.err = nc.FlushTimeout(flushTimeout)
		close(fl.done)
	}
}
