package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/inbox"
	"github.com/triggerd/triggerd/triggers"
	"github.com/triggerd/triggerd/turns"
)

var _ console.Backend = (*Daemon)(nil)

const listDefault = 50

// Events implements [console.Backend].
func (d *Daemon) Events(ctx context.Context, q console.EventQuery) ([]console.EventInfo, error) {
	iq := inbox.Query{Before: q.After, Limit: q.Limit}
	if q.Limit == 0 {
		iq.Limit = listDefault
	}
	if q.Limit < 0 {
		iq.Limit = 0
	}
	if q.Connection != "" {
		iq.Connection = d.connectionKey(q.Connection)
	}
	if q.Type != "" {
		if err := triggers.ValidGlob(q.Type); err != nil {
			return nil, fmt.Errorf("%w: type: %w", triggerd.ErrInvalidEvent, err)
		}
		iq.Match = func(ev *triggerd.Event) bool { return triggers.MatchType(q.Type, ev.Type) }
	}
	evs, err := inbox.List(ctx, d.bus, iq)
	if err != nil {
		return nil, err
	}
	out := make([]console.EventInfo, len(evs))
	for i := range evs {
		out[i] = d.eventInfo(&evs[i])
	}
	return out, nil
}

func (d *Daemon) connectionKey(name string) string {
	if key, ok := d.plan.Load().keyOf[name]; ok {
		return key
	}
	return name
}

func (d *Daemon) eventInfo(ev *triggerd.Event) console.EventInfo {
	return console.EventInfo{
		Seq: ev.Seq, Connection: d.connectionName(ev.Connection), ID: ev.ID, Type: ev.Type, Time: ev.Time, Received: ev.Received, Bytes: ev.Size(),
	}
}

// Event implements [console.Backend].
func (d *Daemon) Event(ctx context.Context, ref string) (console.EventDetail, error) {
	ev, err := d.findEvent(ctx, ref)
	if err != nil {
		return console.EventDetail{}, err
	}
	out := d.eventDetail(&ev)
	set, _, err := d.setFor(ctx, ev.Connection, ev.Seq)
	if err != nil || set == nil {
		return out, err
	}
	for _, v := range set.Decide(&ev) {
		t, err := d.turnOf(ctx, &ev, v.Trigger)
		if err != nil {
			return out, err
		}
		if t != nil {
			out.Turns = append(out.Turns, *t)
		}
	}
	return out, nil
}

// findEvent resolves a reference whose connection is given by its present name.
func (d *Daemon) findEvent(ctx context.Context, ref string) (triggerd.Event, error) {
	if name, id, ok := strings.Cut(ref, "/"); ok {
		if key, known := d.plan.Load().keyOf[name]; known {
			ref = key + "/" + id
		}
	}
	return inbox.Find(ctx, d.bus, ref)
}

// eventDetail shows the payload as what it is: JSON, text or bytes.
func (d *Daemon) eventDetail(ev *triggerd.Event) console.EventDetail {
	out := console.EventDetail{
		EventInfo: d.eventInfo(ev), ContentType: ev.ContentType, Headers: ev.Headers, Hops: ev.Hops, Turns: []console.TurnInfo{},
	}
	if ev.Cursor != nil {
		c := string(ev.Cursor)
		out.Cursor = &c
	}
	switch {
	case len(ev.Payload) == 0:
	case !triggerd.IsText(ev.ContentType) && json.Valid(ev.Payload) && utf8.Valid(ev.Payload):
		out.Payload = ev.Payload
	case utf8.Valid(ev.Payload):
		s := string(ev.Payload)
		out.Text = &s
	default:
		out.Base64 = ev.Payload
	}
	return out
}

// Explain implements [console.Backend].
func (d *Daemon) Explain(ctx context.Context, ref string) (console.Explanation, error) {
	ev, err := d.findEvent(ctx, ref)
	if err != nil {
		return console.Explanation{}, err
	}
	set, version, err := d.setFor(ctx, ev.Connection, ev.Seq)
	out := console.Explanation{Event: d.eventInfo(&ev), Version: version, Verdicts: []console.Verdict{}}
	if err != nil || set == nil {
		return out, err
	}
	pending, err := d.pending(ctx, &ev)
	if err != nil {
		return out, err
	}
	for _, v := range set.Decide(&ev) {
		row := console.Verdict{Trigger: v.Name, Verdict: string(v.Kind), Reason: v.Reason}
		if row.Turn, err = d.turnOf(ctx, &ev, v.Trigger); err != nil {
			return out, err
		}
		if v.Kind == triggers.Matched && row.Turn == nil {
			row.Verdict, row.Reason = "pending", "matched; its turn is not open yet"
			if !pending {
				row.Verdict, row.Reason = string(v.Kind), "matched; its turn has expired from the history"
			}
		}
		out.Verdicts = append(out.Verdicts, row)
	}
	return out, nil
}

// pending reports whether the event's turns are still to be opened, here or on another daemon.
func (d *Daemon) pending(ctx context.Context, ev *triggerd.Event) (bool, error) {
	if c := d.connection(ev.Connection); c != nil || d.share == nil {
		return c != nil && c.inbox.Handled() < ev.Seq, nil
	}
	floors, err := inbox.Floors(ctx, d.bus)
	return floors[ev.Connection] < ev.Seq, err
}

// Fire implements [console.Backend].
func (d *Daemon) Fire(ctx context.Context, r console.FireRequest) (console.FireResult, error) {
	key, ok := d.plan.Load().trigger[r.Trigger]
	if !ok {
		return console.FireResult{}, fmt.Errorf("trigger %q: %w", r.Trigger, triggerd.ErrNotFound)
	}
	ev := triggerd.Event{ID: r.ID, Type: "manual", Target: key, Payload: r.Data}
	if r.Event != "" {
		src, err := d.findEvent(ctx, r.Event)
		if err != nil {
			return console.FireResult{}, err
		}
		ev.Type, ev.Payload, ev.ContentType, ev.Headers, ev.Hops = src.Type, src.Payload, src.ContentType, src.Headers, src.Hops
	}
	if ev.ID == "" {
		ev.ID = ulid.Make().String()
	}
	rec, err := (&emitter{d: d, key: manualConnection}).Emit(ctx, ev)
	if err != nil {
		return console.FireResult{}, err
	}
	if rec.Duplicate {
		if err := d.firedBefore(ctx, &ev); err != nil {
			return console.FireResult{}, err
		}
	}
	tk := triggerd.TurnKey{Connection: manualConnection, Trigger: key, EventID: ev.ID}
	res := console.FireResult{Event: manualConnection + "/" + ev.ID, Duplicate: rec.Duplicate, Turn: tk.Hash(), Key: tk.String()}
	p := d.plan.Load()
	if t := p.config.Triggers[r.Trigger]; t.Enabled != nil && !*t.Enabled {
		res.Note = "the trigger is disabled: no turn is opened"
	} else if _, paused := d.engine().Paused(key); paused {
		res.Note = "the trigger is paused: the turn is held until `triggerd triggers resume`"
		if p.specs[key].SkipPaused {
			res.Note = "the trigger is paused: the turn is skipped"
		}
	}
	return res, nil
}

// firedBefore refuses an id that fired another trigger: its event is stored, so this trigger would never get a turn.
func (d *Daemon) firedBefore(ctx context.Context, ev *triggerd.Event) error {
	stored, err := d.findEvent(ctx, manualConnection+"/"+ev.ID)
	if err != nil {
		return err
	}
	if stored.ID == ev.ID && stored.Target != ev.Target {
		return fmt.Errorf("%w: the id %q has fired trigger %q already", triggerd.ErrConflict, ev.ID, d.triggerName(stored.Target))
	}
	return nil
}

// Apps implements [console.Backend].
func (d *Daemon) Apps(context.Context) ([]console.AppInfo, error) {
	p := d.plan.Load()
	out := []console.AppInfo{}
	for _, name := range sortedKeys(p.config.Connections) {
		if p.config.Connections[name].Push != nil {
			out = append(out, appInfo(name, d.bus.AppFor(p.keyOf[name])))
		}
	}
	return out, nil
}

// AddApp implements [console.Backend].
func (d *Daemon) AddApp(_ context.Context, name string) (console.AppInfo, error) {
	return d.changeApp(name, d.bus.AddApp)
}

// RemoveApp implements [console.Backend].
func (d *Daemon) RemoveApp(_ context.Context, name string) (console.AppInfo, error) {
	return d.changeApp(name, d.bus.RemoveApp)
}

func (d *Daemon) changeApp(name string, change func(string) (bus.App, error)) (console.AppInfo, error) {
	p := d.plan.Load()
	c, ok := p.config.Connections[name]
	if !ok {
		return console.AppInfo{}, fmt.Errorf("connection %q: %w", name, triggerd.ErrNotFound)
	}
	if c.Push == nil {
		return console.AppInfo{}, fmt.Errorf("%w: connection %q takes no pushes from apps", triggerd.ErrConflict, name)
	}
	app, err := change(p.keyOf[name])
	return appInfo(name, app), err
}

func appInfo(name string, a bus.App) console.AppInfo {
	return console.AppInfo{Connection: name, User: a.User, File: a.File, URL: a.URL, Subjects: a.Subjects, Enabled: a.Enabled}
}

// Ready implements [console.Backend].
func (d *Daemon) Ready(context.Context) console.Readiness {
	r := console.Readiness{Version: d.opts.Version, Role: d.role(), Standby: d.standby(), Reasons: []string{}, Sources: []console.SourceStatus{}}
	if !d.ready.Load() {
		r.Reasons = append(r.Reasons, "the daemon is starting or stopping")
	}
	if err := d.bus.Writable(); err != nil {
		r.Reasons = append(r.Reasons, strings.TrimPrefix(err.Error(), triggerd.ErrUnavailable.Error()+": "))
	}
	if why := d.refused.Load(); why != nil {
		r.ConfigError = *why
	}
	r.Ready = len(r.Reasons) == 0
	p := d.plan.Load()
	for _, name := range sortedKeys(p.config.Connections) {
		c := d.connection(p.keyOf[name])
		if c == nil {
			continue
		}
		s := c.status.Snapshot()
		row := console.SourceStatus{
			Connection: name, Kind: kindOf(p, name), State: string(s.State), Error: s.Error, Events: s.Events, Pending: c.inbox.Pending(),
		}
		if !s.LastEvent.IsZero() {
			row.LastEvent = &s.LastEvent
		}
		r.Sources = append(r.Sources, row)
	}
	return r
}

// Daemons implements [console.Backend].
func (d *Daemon) Daemons(context.Context) ([]console.DaemonInfo, error) {
	if d.share == nil {
		return []console.DaemonInfo{{
			ID: d.id, Host: d.host, PID: os.Getpid(), Version: d.opts.Version, Started: d.started, Owner: true, Self: true,
			Config: d.plan.Load().config.Version(), Connections: d.connectionNames(d.plan.Load().connectionKeys()), Partitions: turns.Partitions,
		}}, nil
	}
	out := []console.DaemonInfo{}
	for _, s := range d.share.table.list() {
		row := console.DaemonInfo{
			ID: s.Daemon, Host: s.Host, PID: s.PID, Version: s.Version, Started: s.Started, Labels: s.Labels, Config: s.Config,
			Generation: s.Generation, Self: s.Daemon == d.id, Dead: s.Dead, Leaving: s.Leaving, Age: time.Since(s.at).Seconds(),
		}
		var keys []string
		keys, row.Partitions, row.History = d.share.table.owned(s.Daemon)
		row.Connections = d.connectionNames(keys)
		row.Owner = len(keys) > 0 || row.Partitions > 0
		if row.Starting = s.Starting; row.Self {
			row.Starting = d.share.starting()
		}
		out = append(out, row)
	}
	return out, nil
}

func (d *Daemon) connectionNames(keys []string) []string {
	out := make([]string, 0, len(keys))
	for _, key := range keys {
		out = append(out, d.connectionName(key))
	}
	slices.Sort(out)
	return out
}

// role says whether this daemon owns any of the work.
func (d *Daemon) role() string {
	if d.share == nil || d.share.owns() {
		return "owner"
	}
	return "standby"
}

// standby says why this daemon takes no work; "" when it does.
func (d *Daemon) standby() string {
	if d.share == nil {
		return ""
	}
	return d.share.why()
}

func kindOf(p *plan, name string) string {
	c := p.config.Connections[name]
	switch {
	case c.Webhook != nil:
		return "webhook"
	case c.Cron != nil:
		return "cron"
	case c.Push != nil:
		return "push"
	}
	return "files"
}
