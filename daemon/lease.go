package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

const (
	leaseKey   = "lease.all"
	leaseEvery = time.Second
	// leaseLook is how often a standby looks at the lease: it bounds how long a released one stays free.
	leaseLook = 250 * time.Millisecond
	// leaseSilence is how long a lease must not change, on our own monotonic clock, before it counts as abandoned (design §5).
	leaseSilence = 5 * time.Second
	// leaseHold is how long an owner goes on that cannot renew while others may take over. It is shorter than leaseSilence by more than a renewal
	// may take, so that what the owner runs has ended when the next one begins.
	leaseHold = 3 * time.Second
	// codeConcurrentWrite is how a stream with replicas refuses a write on a condition while another one is under way.
	codeConcurrentWrite jetstream.ErrorCode = 10164
)

// lease is the ownership of everything in this NATS: inboxes, sources and turns. With the embedded server the lock on the store folder proves it,
// and the lease only counts epochs; on an external one it is renewed each second. Neither wall clocks nor message TTLs have a say.
type lease struct {
	bus      *bus.Bus
	owner    leaseOwner
	epoch    uint64
	revision uint64
	watched  atomic.Bool                // others may take over; as of the last renewal that worked
	ours     bool                       // the last entry that we know of is our own
	good     atomic.Int64               // when the last renewal that worked began, as time since base
	base     time.Time                  // gives good its monotonic clock
	version  func() int                 // generation of this daemon's configuration
	holder   atomic.Pointer[leaseOwner] // who had it when we last looked
	log      zerolog.Logger
}

type leaseOwner struct {
	Daemon   string `json:"daemon"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Epoch    uint64 `json:"epoch"`
	Released bool   `json:"released,omitempty"`
	// Generation is that of the owner's configuration. It stays when the lease is released: a daemon with an older one does not take over.
	Generation int    `json:"generation,omitempty"`
	Beat       uint64 `json:"beat"` // makes every renewal a change
}

func newLease(b *bus.Bus, id string, generation func() int, log zerolog.Logger) *lease {
	host, _ := os.Hostname()
	return &lease{bus: b, log: log, base: time.Now(), version: generation, owner: leaseOwner{Daemon: id, Host: host, PID: os.Getpid()}}
}

// try takes the lease if nobody has it, and reports whether it did.
func (l *lease) try(ctx context.Context) (bool, error) {
	last, err := l.read(ctx)
	if err != nil || !l.free(last) || l.outdated(last) {
		return false, err
	}
	return l.take(ctx, last)
}

// outdated reports whether an owner ran with a newer configuration than ours: taking over would undo it.
func (l *lease) outdated(last *leaseOwner) bool {
	return l.bus.External() && last != nil && last.Generation > l.version()
}

// why says why a standby does not take over even if it could; "" when it would.
func (l *lease) why() string {
	o := l.holder.Load()
	if !l.outdated(o) {
		return ""
	}
	return fmt.Sprintf("generation %d of the configuration is older than %d, which an owner had: this daemon takes over nothing until it has that one", l.version(), o.Generation)
}

// free reports whether the lease may be taken at once. One of our own is left from a term that ended without an answer.
func (l *lease) free(last *leaseOwner) bool {
	return !l.bus.External() || last == nil || last.Released || last.Daemon == l.owner.Daemon
}

// await blocks until the lease is ours or ctx ends: until it is released, or has been silent for leaseSilence. Silence counts only while every look
// at it is answered in time: otherwise nobody knows whether it was silent, or we were deaf or frozen.
func (l *lease) await(ctx context.Context) error {
	var seen uint64
	var since, looked time.Time
	said := ""
	for bus.Pause(ctx, leaseLook) {
		last, err := l.read(ctx)
		now := time.Now()
		if err != nil || now.Sub(looked) > leaseEvery || l.revision != seen {
			since = now
		}
		if err != nil {
			continue
		}
		seen, looked = l.revision, now
		if why := l.why(); why != said {
			if said = why; why != "" {
				l.log.Warn().Str("reason", why).Msg("this standby does not take over")
			}
		}
		if said != "" {
			continue
		}
		if !l.free(last) && now.Sub(since) < leaseSilence {
			continue
		}
		if !l.free(last) {
			l.log.Warn().Str("daemon", last.Daemon).Str("host", last.Host).Dur("silent", now.Sub(since)).Msg("the owner is silent: taking over")
		}
		if ok, err := l.take(ctx, last); ok || ctx.Err() != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// take makes the lease ours on the condition that it is as last says. It reports false when somebody else was faster.
func (l *lease) take(ctx context.Context, last *leaseOwner) (bool, error) {
	l.owner.Epoch, l.owner.Released = 1, false
	if last != nil {
		l.owner.Epoch = last.Epoch + 1
	}
	l.epoch = l.owner.Epoch
	l.owner.Generation = l.version()
	began := time.Since(l.base)
	if err := l.renew(ctx); errors.Is(err, triggerd.ErrFenced) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	l.good.Store(int64(began))
	return true, l.bus.Sync(ctx)
}

func (l *lease) read(ctx context.Context) (*leaseOwner, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	e, err := l.bus.Control.Get(ctx, leaseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		l.revision, l.ours = 0, false
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read lease: %w", err)
	}
	var o leaseOwner
	if err := json.Unmarshal(e.Value(), &o); err != nil {
		return nil, fmt.Errorf("decode lease: %w", err)
	}
	l.revision, l.ours = e.Revision(), o.Daemon == l.owner.Daemon && o.Epoch == l.owner.Epoch
	l.holder.Store(&o)
	return &o, nil
}

// renew writes the lease on the condition that nobody else has.
func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	l.owner.Beat++
	l.owner.Generation = l.version() // a reload may have raised it
	rev, err := l.bus.Control.Update(ctx, leaseKey, mustJSON(l.owner), l.revision)
	if err == nil {
		l.revision, l.ours = rev, true
		owner := l.owner
		l.holder.Store(&owner)
		return nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == codeConcurrentWrite) {
		return l.lost(ctx)
	}
	return fmt.Errorf("write lease: %w: %w", triggerd.ErrUnavailable, err)
}

// lost tells a renewal of our own whose answer was lost from somebody else's.
func (l *lease) lost(ctx context.Context) error {
	if _, err := l.read(ctx); err != nil || l.ours {
		return err
	}
	return fmt.Errorf("write lease: %w", triggerd.ErrFenced)
}

// alive reports whether what runs here may have effects: not while another daemon may have taken over.
func (l *lease) alive() bool { return l.held() || !l.watched.Load() }

// held reports whether the last renewal is so recent that no other daemon can have taken over.
func (l *lease) held() bool {
	return time.Since(l.base)-time.Duration(l.good.Load()) < leaseHold
}

// keep renews the lease until ctx ends. It returns [triggerd.ErrFenced] when another daemon has taken it, or may take it before it can be renewed:
// peers says whether there are others; early, when not all can have been heard, whether there may be. A lone daemon waits for an unreachable NATS,
// however long that takes.
func (l *lease) keep(ctx context.Context, peers func(early bool) bool) error {
	if !l.bus.External() {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	taken := time.Since(l.base)
	l.watched.Store(peers(true))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		began := time.Since(l.base)
		err := l.renew(ctx)
		switch {
		case errors.Is(err, triggerd.ErrFenced):
			return fmt.Errorf("keep the lease: %w", err)
		case err == nil:
			l.good.Store(int64(began))
			l.watched.Store(peers(time.Since(l.base)-taken < 2*leaseEvery)) // whoever was there before us is heard within a second
		case l.watched.Load() && !l.held():
			return fmt.Errorf("keep the lease: not renewed for %v, another daemon may take over: %w", leaseHold, triggerd.ErrFenced)
		}
	}
}

// release lets the next daemon start at once. It takes nothing away from a later owner.
func (l *lease) release() error {
	if !l.bus.External() || !l.ours {
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
