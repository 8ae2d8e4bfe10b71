package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/turns"
)

// Turns implements [console.Backend].
func (d *Daemon) Turns(ctx context.Context, q console.TurnQuery) ([]console.TurnInfo, error) {
	trigger, connection := d.triggerKey(q.Trigger), d.connectionKey(q.Connection)
	infos, err := d.engine().List(ctx, func(i *turns.Info) bool {
		return (q.Trigger == "" || i.Key.Trigger == trigger) &&
			(q.Connection == "" || i.Key.Connection == connection) &&
			(q.State == "" || string(i.State) == q.State)
	})
	if err != nil {
		return nil, err
	}
	if q.After != "" {
		for n := range infos {
			if infos[n].Hash == q.After {
				infos = infos[n+1:]
				break
			}
		}
	}
	limit := q.Limit
	if limit == 0 {
		limit = listDefault
	}
	if limit > 0 && len(infos) > limit {
		infos = infos[:limit]
	}
	out := make([]console.TurnInfo, len(infos))
	for n := range infos {
		out[n] = d.turnInfo(&infos[n])
	}
	return out, nil
}

func (d *Daemon) triggerKey(name string) string {
	if key, ok := d.plan.Load().trigger[name]; ok {
		return key
	}
	return name
}

// triggerName is a trigger's present name, or the key when it is configured no more.
func (d *Daemon) triggerName(key string) string {
	if s := d.plan.Load().specs[key]; s != nil {
		return s.Name
	}
	return key
}

func (d *Daemon) turnInfo(i *turns.Info) console.TurnInfo {
	out := console.TurnInfo{
		Hash: i.Hash, Key: i.Key.String(), Connection: d.connectionName(i.Key.Connection), Trigger: d.triggerName(i.Key.Trigger),
		EventID: i.Key.EventID, Thread: i.Thread, State: string(i.State), Attempt: i.Attempt, Opened: i.Opened, Error: i.Cause, ReplayOf: i.ReplayOf,
	}
	if !i.Finished.IsZero() {
		out.Finished = &i.Finished
	}
	if !i.NotBefore.IsZero() {
		out.NotBefore = &i.NotBefore
	}
	if r := i.Result; r != nil {
		out.Outcome = &console.Outcome{ExitCode: r.ExitCode, Status: r.Status, OutputBytes: r.Bytes, OutputCut: r.Cut}
	}
	return out
}

// turnOf is the turn that an event opened for a trigger; nil when there is none.
func (d *Daemon) turnOf(ctx context.Context, ev *triggerd.Event, trigger string) (*console.TurnInfo, error) {
	k := triggerd.TurnKey{Connection: ev.Connection, Trigger: trigger, EventID: ev.ID}
	i, err := d.engine().Get(ctx, k.Hash())
	if err != nil || i == nil {
		return nil, err
	}
	t := d.turnInfo(i)
	return &t, nil
}

// Turn implements [console.Backend].
func (d *Daemon) Turn(ctx context.Context, ref string) (console.TurnDetail, error) {
	hash, err := d.engine().Find(ctx, ref)
	if err != nil {
		return console.TurnDetail{}, err
	}
	t, err := d.engine().Show(ctx, hash)
	if err != nil {
		return console.TurnDetail{}, err
	}
	out := console.TurnDetail{
		TurnInfo: d.turnInfo(&t.Info), Event: d.eventDetail(&t.Event), Output: strings.ToValidUTF8(string(t.Output), "\uFFFD"),
		History: make([]console.TurnEntry, len(t.History)),
	}
	if t.HasInput {
		out.Input = t.Input
	}
	for n, h := range t.History {
		out.History[n] = console.TurnEntry{Seq: h.Seq, Time: h.Time, State: string(h.State), Attempt: h.Attempt, Cause: h.Cause, Daemon: h.Daemon, Epoch: h.Epoch}
	}
	return out, nil
}

// RetryTurn implements [console.Backend].
func (d *Daemon) RetryTurn(ctx context.Context, ref string) (console.TurnInfo, error) {
	return d.operate(ctx, opRetry, ref)
}

// CancelTurn implements [console.Backend].
func (d *Daemon) CancelTurn(ctx context.Context, ref string) (console.TurnInfo, error) {
	return d.operate(ctx, opCancel, ref)
}

func (d *Daemon) operate(ctx context.Context, op, ref string) (console.TurnInfo, error) {
	hash, err := d.engine().Find(ctx, ref)
	if err != nil {
		return console.TurnInfo{}, err
	}
	if hash, err = d.changeTurn(ctx, op, hash); err != nil {
		return console.TurnInfo{}, err
	}
	return d.turnByHash(ctx, hash)
}

func (d *Daemon) turnByHash(ctx context.Context, hash string) (console.TurnInfo, error) {
	i, err := d.engine().Get(ctx, hash)
	if err != nil {
		return console.TurnInfo{}, err
	}
	if i == nil {
		return console.TurnInfo{}, fmt.Errorf("turn %s: %w", hash, triggerd.ErrNotFound)
	}
	return d.turnInfo(i), nil
}

// Triggers implements [console.Backend].
func (d *Daemon) Triggers(ctx context.Context) ([]console.TriggerInfo, error) {
	p := d.plan.Load()
	counts, dead, err := d.counts(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]console.TriggerInfo, 0, len(p.specs))
	for _, name := range sortedKeys(p.config.Triggers) {
		key := p.trigger[name]
		row := d.triggerInfo(p, name)
		row.Queued, row.Running, row.Held, row.Dead = counts[key].Queued, counts[key].Running, counts[key].Held, dead[key]
		out = append(out, row)
	}
	return out, nil
}

// counts are the unfinished and the dead turns of each trigger. On an external NATS they are what the ledger says, because other daemons run some.
func (d *Daemon) counts(ctx context.Context) (map[string]turns.Counts, map[string]int, error) {
	counts, dead := map[string]turns.Counts{}, map[string]int{}
	_, err := d.engine().List(ctx, func(i *turns.Info) bool {
		if i.State == turns.Dead {
			dead[i.Key.Trigger]++
		}
		c := counts[i.Key.Trigger]
		c.Count(i.State)
		counts[i.Key.Trigger] = c
		return false
	})
	if d.share == nil {
		counts = d.engine().Counts()
	}
	return counts, dead, err
}

func (d *Daemon) triggerInfo(p *plan, name string) console.TriggerInfo {
	t := p.config.Triggers[name]
	row := console.TriggerInfo{
		Name: name, Connections: t.Connection, Events: t.Event, Action: actionKind(&t.Run), Overlap: t.Overlap,
		Enabled: t.Enabled == nil || *t.Enabled,
	}
	if row.Events == nil {
		row.Events = []string{}
	}
	if pause, ok := d.engine().Paused(p.trigger[name]); ok {
		row.Paused, row.PausedUntil, row.PauseNote = true, pause.Until, pause.Note
	}
	return row
}

// PauseTrigger implements [console.Backend].
func (d *Daemon) PauseTrigger(ctx context.Context, name string, r console.PauseRequest) (console.TriggerInfo, error) {
	return d.changePause(ctx, name, func(e *turns.Engine, key string) error {
		return e.Pause(ctx, key, turns.Pause{Since: time.Now().UTC(), Until: r.Until, Note: r.Note})
	})
}

// ResumeTrigger implements [console.Backend].
func (d *Daemon) ResumeTrigger(ctx context.Context, name string) (console.TriggerInfo, error) {
	return d.changePause(ctx, name, func(e *turns.Engine, key string) error { return e.Resume(ctx, key) })
}

func (d *Daemon) changePause(ctx context.Context, name string, change func(e *turns.Engine, key string) error) (console.TriggerInfo, error) {
	p := d.plan.Load()
	key, ok := p.trigger[name]
	if !ok {
		return console.TriggerInfo{}, fmt.Errorf("trigger %q: %w", name, triggerd.ErrNotFound)
	}
	if err := change(d.engine(), key); err != nil {
		return console.TriggerInfo{}, err
	}
	row := d.triggerInfo(p, name)
	counts, _, err := d.counts(ctx)
	c := counts[key]
	row.Queued, row.Running, row.Held = c.Queued, c.Running, c.Held
	return row, err
}
