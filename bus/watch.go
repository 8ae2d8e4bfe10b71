package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	watchEvery = 250 * time.Millisecond
	// replaceEvery is the pause between tries to start a server on a store that lets none start.
	replaceEvery = 2 * time.Second
	probeTimeout = time.Second
	// noSequence is one that no stream gets to, so what expects it is refused: a question that stores nothing.
	noSequence = 1 << 60
)

// watch looks after the store until the bus is closed (design §4, "disk full"): it refuses events while free space is below the reserve,
// replaces an embedded server that a write error has made useless, and finds out when a silent stream answers again.
type watch struct {
	bus   *Bus
	last  time.Time
	low   bool
	retry time.Time // not before: the next try to replace the server
}

func (b *Bus) startWatch() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w := &watch{bus: b, last: time.Now()}
	if b.embedded != nil {
		w.space() // the first answer must know about a full disk
	}
	b.stopWatch = func() { cancel(); <-done }
	go func() {
		defer close(done)
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-t.C:
				w.runOnce(ctx, now)
			}
		}
	}()
}

func (w *watch) runOnce(ctx context.Context, now time.Time) {
	if now.Sub(w.last) > 4*watchEvery {
		// The whole process stood still (SIGSTOP, suspend): silence of a stream in that time says nothing about it.
		w.bus.health.silence.forget()
	}
	w.last = now
	if w.bus.embedded != nil {
		enough := w.space()
		w.mend(ctx, now, enough)
	}
	w.bus.probe(ctx)
}

// space refuses events while the disk is below the reserve, and reports whether there is enough for a server to start.
func (w *watch) space() bool {
	b, reserve := w.bus, w.bus.embedded.opts.Reserve
	free, _, err := freeBytes(b.embedded.opts.Store)
	if err != nil {
		b.health.note(b.log, err, "watch the disk of the store")
		return !w.low
	}
	if low := free < reserve; low != w.low {
		w.low = low
		if low {
			b.RefuseEvents("disk", fmt.Sprintf("the disk of the store has %d MiB left, below the reserve of %d MiB", free>>20, reserve>>20))
			b.log.Error().Int64("free_bytes", free).Int64("reserve_bytes", reserve).Msg("disk almost full: events are refused until there is space")
		} else {
			b.RefuseEvents("disk", "")
			b.log.Info().Int64("free_bytes", free).Msg("disk has space again: events are accepted")
		}
	}
	return free >= max(reserve, minToStart)
}

// mend replaces a server that cannot write any more, once there is space.
func (w *watch) mend(ctx context.Context, now time.Time, enough bool) {
	b := w.bus
	why := b.broken()
	if why == "" {
		b.RefuseEvents("server", "")
		return
	}
	b.RefuseEvents("server", "the embedded NATS server is restarted, because "+why)
	if !enough || now.Before(w.retry) {
		return
	}
	b.log.Warn().Str("because", why).Msg("restarting the embedded NATS server")
	if err := b.replaceServer(ctx); err != nil {
		w.retry = time.Now().Add(replaceEvery)
		b.health.note(b.log, err, "the embedded NATS server does not start; trying again")
		return
	}
	b.RefuseEvents("server", "")
}

// broken names the reason why the embedded server must be replaced; "" when it is fine.
func (b *Bus) broken() string {
	srv := b.embedded.server()
	switch {
	case srv == nil:
		return "it is not running"
	case b.syncer != nil && b.syncer.failed() != nil:
		return "a sync of the store failed"
	case !srv.JetStreamEnabled():
		return "it has turned JetStream off"
	}
	// After a failed write the server leaves every later publish to that stream without an answer, until it is restarted.
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type == server.HealthzErrorStream && strings.Contains(e.Error, "write error") {
			return "a write to the stream " + e.Stream + " failed"
		}
	}
	return ""
}

func (b *Bus) replaceServer(ctx context.Context) error {
	e := b.embedded
	e.stopServer()
	if b.syncer != nil && b.syncer.failed() != nil {
		// The kernel marks pages clean when it could not write them, and would go on serving them from memory.
		// The new server must read what the device has, or it would take an event for stored that is not.
		if err := dropCache(e.opts.Store); err != nil {
			return err
		}
	}
	if err := e.start(ctx); err != nil {
		return err
	}
	if b.syncer != nil {
		b.syncer.reset()
	}
	b.health.silence.forget()
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	b.health.restarts++
	return nil
}

// probeStream publishes what the stream must refuse; any answer ends its silence.
func (b *Bus) probeStream(ctx context.Context, stream string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	m := nats.NewMsg(b.Names.probe(stream))
	Expect(m, m.Subject, noSequence)
	_, _ = b.Publish(ctx, m)
}
