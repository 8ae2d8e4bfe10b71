package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/inbox"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/triggers"
)

// versions knows, for each connection, which configuration decides which of its events. An event is decided by the version that was live when it was
// stored, also when it is decided again after a crash or explained a week later.
type versions struct {
	mu     sync.RWMutex // held while a version becomes live, so that no event is decided by the one before it after that
	byConn map[string][]inbox.Version
	// recorded are connections of which a standby knows that they have a version; they never lose their last one.
	recorded map[string]bool
	sets     map[string]*triggers.Set // by version id
	logs     sources.Limiter
}

// setVersion makes the plan's version live for a connection: recorded first, used after. Safe to repeat. The error is [triggerd.ErrFenced] when a later
// owner has recorded one.
func (d *Daemon) setVersion(ctx context.Context, key string, p *plan, epoch uint64) error {
	defs, id := p.defs[key], p.version[key]
	set, err := triggers.Compile(defs)
	if err != nil {
		return fmt.Errorf("compile triggers of %s: %w", key, err)
	}
	if err := inbox.SaveDefinitions(ctx, d.bus, id, mustJSON(defs)); err != nil {
		return err
	}
	v := &d.versions
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := d.bus.Events.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the end of EVENTS: %w: %w", triggerd.ErrUnavailable, err)
	}
	// From the next event on. What is stored already keeps its decider: nothing is decided twice in different ways,
	// and a widened filter does not replay the past (P22).
	vs, err := inbox.AddVersion(ctx, d.bus, key, inbox.Version{ID: id, From: info.State.LastSeq + 1}, epoch, info.State.FirstSeq)
	if err != nil {
		return err
	}
	if v.byConn == nil {
		v.byConn = map[string][]inbox.Version{}
	}
	if v.sets == nil {
		v.sets = map[string]*triggers.Set{}
	}
	v.byConn[key], v.sets[id] = vs, set
	return nil
}

// setFor is what decides the connection's event with this sequence; nil when no version did at its time.
func (d *Daemon) setFor(ctx context.Context, key string, seq uint64) (*triggers.Set, string, error) {
	v := &d.versions
	var known []inbox.Version
	if d.connection(key) == nil {
		// Its owner may have recorded others since this daemon last was that.
		var err error
		if known, err = inbox.LoadVersions(ctx, d.bus, key); err != nil {
			return nil, "", err
		}
	}
	v.mu.RLock()
	if known == nil {
		known = v.byConn[key]
	}
	ver := inbox.VersionAt(known, seq)
	set := v.sets[ver.ID]
	v.mu.RUnlock()
	if set != nil || ver.ID == "" {
		return set, ver.ID, nil
	}
	data, err := inbox.LoadDefinitions(ctx, d.bus, ver.ID)
	if err != nil {
		return nil, "", err
	}
	var defs []triggers.Definition
	if err := json.Unmarshal(data, &defs); err != nil {
		return nil, "", fmt.Errorf("decode definitions %s: %w", ver.ID, err)
	}
	if set, err = triggers.Compile(defs); err != nil {
		return nil, "", fmt.Errorf("compile definitions %s: %w", ver.ID, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sets == nil {
		v.sets = map[string]*triggers.Set{}
	}
	v.sets[ver.ID] = set
	return set, ver.ID, nil
}

// taken reports whether a configuration decides the connection's events; the error is [triggerd.ErrUnavailable] while none does.
func (d *Daemon) taken(ctx context.Context, key string) error {
	v := &d.versions
	v.mu.RLock()
	known := len(v.byConn[key]) > 0 || v.recorded[key]
	v.mu.RUnlock()
	if known {
		return nil
	}
	vs, err := inbox.LoadVersions(ctx, d.bus, key)
	if err != nil {
		return fmt.Errorf("%w: %w", triggerd.ErrUnavailable, err)
	}
	if len(vs) == 0 {
		return fmt.Errorf("%w: no owner has taken this connection up yet", triggerd.ErrUnavailable)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.recorded == nil {
		v.recorded = map[string]bool{}
	}
	v.recorded[key] = true
	return nil
}

// decider turns the verdicts of one version into openings.
type decider struct {
	d       *Daemon
	set     *triggers.Set
	version string
}

// Decide implements [inbox.Decider].
func (x decider) Decide(ev *triggerd.Event) []triggerd.Opening {
	if x.set == nil {
		return nil
	}
	var out []triggerd.Opening
	for _, v := range x.set.Matches(ev) {
		if v.Kind != triggers.Matched {
			x.d.metrics.errored(v.Trigger)
			if n, ok := x.d.versions.logs.Allow(v.Trigger); ok {
				// The reason may quote the event; `explain` shows it.
				x.d.log.Warn().Str("trigger", v.Name).Uint64("event", ev.Seq).Uint64("suppressed", n).
					Msg("a trigger's expression failed on an event: no turn; see `triggerd explain`")
			}
			continue
		}
		out = append(out, triggerd.Opening{
			Key:   triggerd.TurnKey{Connection: ev.Connection, Trigger: v.Trigger, EventID: ev.ID},
			Event: ev, Thread: v.Thread, Lane: v.Lane, Input: v.Input, HasInput: v.HasInput, Version: x.version,
			Queues: cron.Backfilled(ev),
		})
	}
	return out
}
