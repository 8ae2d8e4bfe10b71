package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

const (
	leaseKey   = "lease.all"
	leaseEvery = time.Second
	// leaseSilence is how long a lease must not change, on our own monotonic clock, before it counts as abandoned (design §5).
	leaseSilence = 5 * time.Second
)

// lease is the ownership of everything in this NATS. With the embedded server the lock on the store folder proves it, and the lease only
// counts epochs; on an external one it is renewed each second, and a second daemon is refused while it is.
type lease struct {
	bus      *bus.Bus
	owner    leaseOwner
	epoch    uint64
	revision uint64
	log      zerolog.Logger
}

type leaseOwner struct {
	Daemon   string `json:"daemon"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Epoch    uint64 `json:"epoch"`
	Released bool   `json:"released,omitempty"`
	Beat     uint64 `json:"beat"` // makes every renewal a change
}

// errOtherDaemon is the refusal of a second daemon.
var errOtherDaemon = errors.New("another daemon owns this NATS")

func acquireLease(ctx context.Context, b *bus.Bus, id string, log zerolog.Logger) (*lease, error) {
	host, _ := os.Hostname()
	l := &lease{bus: b, log: log, owner: leaseOwner{Daemon: id, Host: host, PID: os.Getpid()}}
	last, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	if b.External() && last != nil && !last.Released {
		log.Info().Str("daemon", last.Daemon).Str("host", last.Host).Msg("another daemon owned this NATS; waiting to see whether it lives")
		if err := l.awaitSilence(ctx); err != nil {
			return nil, fmt.Errorf("%w: %s (process %d on %s) is alive; several daemons on one NATS are not supported by this version: "+
				"stop that one, or give this one its own nats.prefix", err, last.Daemon, last.PID, last.Host)
		}
	}
	l.owner.Epoch = 1
	if last != nil {
		l.owner.Epoch = last.Epoch + 1
	}
	l.epoch = l.owner.Epoch
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	return l, b.Sync(ctx)
}

func (l *lease) read(ctx context.Context) (*leaseOwner, error) {
	e, err := l.bus.Control.Get(ctx, leaseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read lease: %w", err)
	}
	var o leaseOwner
	if err := json.Unmarshal(e.Value(), &o); err != nil {
		return nil, fmt.Errorf("decode lease: %w", err)
	}
	l.revision = e.Revision()
	return &o, nil
}

// awaitSilence watches the lease and returns nil when it does not change for leaseSilence.
func (l *lease) awaitSilence(ctx context.Context) error {
	first := l.revision
	deadline := time.Now().Add(leaseSilence)
	for time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseEvery / 2):
		}
		o, err := l.read(ctx)
		if err != nil {
			return err
		}
		if o != nil && o.Released {
			return nil
		}
		if l.revision != first {
			return errOtherDaemon
		}
	}
	return nil
}

// renew writes the lease on the condition that nobody else has.
func (l *lease) renew(ctx context.Context) error {
	l.owner.Beat++
	rev, err := l.bus.Control.Update(ctx, leaseKey, mustJSON(l.owner), l.revision)
	if err == nil {
		l.revision = rev
		return nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return l.lost(ctx)
	}
	return fmt.Errorf("write lease: %w: %w", triggerd.ErrUnavailable, err)
}

// lost tells a renewal of our own whose answer was lost from somebody else's.
func (l *lease) lost(ctx context.Context) error {
	o, err := l.read(ctx)
	if err != nil {
		return err
	}
	if o != nil && o.Daemon == l.owner.Daemon {
		return nil
	}
	return fmt.Errorf("write lease: %w", triggerd.ErrFenced)
}

// keep renews the lease until ctx ends. It returns [triggerd.ErrFenced] when another daemon has taken it; an unreachable NATS is waited for.
func (l *lease) keep(ctx context.Context) error {
	if !l.bus.External() {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		err := l.renew(ctx)
		if errors.Is(err, triggerd.ErrFenced) {
			return fmt.Errorf("keep the lease: %w", err)
		}
	}
}

// release lets the next daemon start at once.
func (l *lease) release() error {
	if !l.bus.External() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l.owner.Released = true
	if err := l.renew(ctx); err != nil && !errors.Is(err, triggerd.ErrFenced) {
		return err
	}
	return nil
}
