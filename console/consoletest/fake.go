// Package consoletest holds a [console.Backend] in memory and the tests that every Backend must pass.
package consoletest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
)

// Fake is a Backend in memory. Fill its fields before use; it is safe for concurrent use after that.
// It matches types literally, where the daemon takes globs.
type Fake struct {
	EventList    []console.EventDetail // newest first
	TurnList     []console.TurnDetail  // newest first
	TriggerList  []console.TriggerInfo
	AppList      []console.AppInfo
	DaemonList   []console.DaemonInfo
	Explanations map[string]console.Explanation // by the event's sequence
	Readiness    console.Readiness
	ReloadResult console.ReloadResult
	Err          error                     // every call fails with it
	Block        chan struct{}             // CancelTurn waits until it is closed or the context ends
	Blocked      chan struct{}             // receives when CancelTurn begins to wait
	Fired        []console.FireRequest     // what Fire was asked
	Backfills    []console.BackfillRequest // what Backfill was asked
	Now          time.Time                 // of pauses and retries

	mu sync.Mutex
}

var _ console.Backend = (*Fake)(nil)

// Events answers from EventList.
func (f *Fake) Events(_ context.Context, q console.EventQuery) ([]console.EventInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []console.EventInfo
	for _, e := range f.EventList {
		if (q.Connection == "" || e.Connection == q.Connection) && (q.Type == "" || e.Type == q.Type) && (q.After == 0 || e.Seq < q.After) {
			out = append(out, e.EventInfo)
		}
	}
	return cut(out, q.Limit), f.Err
}

// Event finds by sequence, "<connection>/<id>" or a unique prefix.
func (f *Fake) Event(_ context.Context, ref string) (console.EventDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.EventDetail{}, f.Err
	}
	return find(f.EventList, "event", ref, func(e console.EventDetail) []string {
		return []string{strconv.FormatUint(e.Seq, 10), e.Connection + "/" + e.ID, e.ID}
	})
}

// Turns answers from TurnList.
func (f *Fake) Turns(_ context.Context, q console.TurnQuery) ([]console.TurnInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []console.TurnInfo
	for _, t := range f.TurnList {
		if t.Hash == q.After {
			out = nil
			continue
		}
		if (q.Trigger == "" || t.Trigger == q.Trigger) && (q.Connection == "" || t.Connection == q.Connection) && (q.State == "" || t.State == q.State) {
			out = append(out, t.TurnInfo)
		}
	}
	return cut(out, q.Limit), f.Err
}

// Turn finds by hash, unique prefix of it, or key.
func (f *Fake) Turn(_ context.Context, ref string) (console.TurnDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.TurnDetail{}, f.Err
	}
	return f.turn(ref)
}

func (f *Fake) turn(ref string) (console.TurnDetail, error) {
	return find(f.TurnList, "turn", ref, func(t console.TurnDetail) []string { return []string{t.Hash, t.Key} })
}

// RetryTurn opens a replay of a dead turn; any other state is a conflict.
func (f *Fake) RetryTurn(_ context.Context, ref string) (console.TurnInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.TurnInfo{}, f.Err
	}
	t, err := f.turn(ref)
	if err != nil {
		return console.TurnInfo{}, err
	}
	if t.State != "dead" {
		return console.TurnInfo{}, fmt.Errorf("%w: turn %s is %s", triggerd.ErrConflict, t.Hash, t.State)
	}
	t.ReplayOf, t.Key, t.State, t.Attempt = t.Key, t.Key+"#1", "queued", 0
	t.Hash, t.Opened, t.Finished, t.Error = triggerd.HashID(t.Key), f.Now, nil, ""
	f.TurnList = slices.Insert(f.TurnList, 0, t)
	return t.TurnInfo, nil
}

// CancelTurn waits for Block and cancels a turn that has no end yet.
func (f *Fake) CancelTurn(ctx context.Context, ref string) (console.TurnInfo, error) {
	if f.Block != nil {
		f.Blocked <- struct{}{}
		select {
		case <-f.Block:
		case <-ctx.Done():
			return console.TurnInfo{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.TurnInfo{}, f.Err
	}
	t, err := f.turn(ref)
	if err != nil {
		return console.TurnInfo{}, err
	}
	if t.Finished != nil {
		return console.TurnInfo{}, fmt.Errorf("%w: turn %s is %s already", triggerd.ErrConflict, t.Hash, t.State)
	}
	for i := range f.TurnList {
		if f.TurnList[i].Hash == t.Hash {
			f.TurnList[i].State, f.TurnList[i].Finished = "cancelled", &f.Now
			return f.TurnList[i].TurnInfo, nil
		}
	}
	return console.TurnInfo{}, triggerd.ErrNotFound
}

// Explain answers from Explanations.
func (f *Fake) Explain(ctx context.Context, ref string) (console.Explanation, error) {
	e, err := f.Event(ctx, ref)
	if err != nil {
		return console.Explanation{}, err
	}
	return f.Explanations[strconv.FormatUint(e.Seq, 10)], nil
}

// Triggers answers from TriggerList.
func (f *Fake) Triggers(context.Context) ([]console.TriggerInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.TriggerList), f.Err
}

// PauseTrigger pauses.
func (f *Fake) PauseTrigger(_ context.Context, name string, p console.PauseRequest) (console.TriggerInfo, error) {
	return f.editTrigger(name, func(t *console.TriggerInfo) { t.Paused, t.PausedUntil, t.PauseNote = true, p.Until, p.Note })
}

// ResumeTrigger ends a pause.
func (f *Fake) ResumeTrigger(_ context.Context, name string) (console.TriggerInfo, error) {
	return f.editTrigger(name, func(t *console.TriggerInfo) { t.Paused, t.PausedUntil, t.PauseNote = false, nil, "" })
}

func (f *Fake) editTrigger(name string, edit func(*console.TriggerInfo)) (console.TriggerInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.TriggerInfo{}, f.Err
	}
	for i := range f.TriggerList {
		if f.TriggerList[i].Name == name {
			edit(&f.TriggerList[i])
			return f.TriggerList[i], nil
		}
	}
	return console.TriggerInfo{}, fmt.Errorf("trigger %q: %w", name, triggerd.ErrNotFound)
}

// Backfill records the request, and answers with a slot at each end.
func (f *Fake) Backfill(_ context.Context, r console.BackfillRequest) (console.BackfillResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.BackfillResult{}, f.Err
	}
	f.Backfills = append(f.Backfills, r)
	out := console.BackfillResult{Batch: "batch-" + strconv.Itoa(len(f.Backfills))}
	for _, at := range []time.Time{r.From, r.To} {
		out.Slots = append(out.Slots, console.BackfilledSlot{
			Local: at.Format(time.RFC3339), UTC: at.UTC(), Event: r.Connection + "/" + at.UTC().Format(time.RFC3339), State: console.SlotBackfilled,
		})
	}
	return out, nil
}

// Fire records the request; the same ID again is a duplicate.
func (f *Fake) Fire(_ context.Context, r console.FireRequest) (console.FireResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.FireResult{}, f.Err
	}
	if !slices.ContainsFunc(f.TriggerList, func(t console.TriggerInfo) bool { return t.Name == r.Trigger }) {
		return console.FireResult{}, fmt.Errorf("trigger %q: %w", r.Trigger, triggerd.ErrNotFound)
	}
	id := r.ID
	if id == "" {
		id = "fired-" + strconv.Itoa(len(f.Fired)+1)
	}
	key := triggerd.TurnKey{Connection: "manual", Trigger: r.Trigger, EventID: id}
	dup := slices.ContainsFunc(f.Fired, func(o console.FireRequest) bool { return o.ID == id })
	f.Fired = append(f.Fired, r)
	return console.FireResult{Event: "manual/" + id, Duplicate: dup, Turn: key.Hash(), Key: key.String()}, nil
}

// Reload answers ReloadResult.
func (f *Fake) Reload(context.Context) (console.ReloadResult, error) { return f.ReloadResult, f.Err }

// Daemons answers DaemonList.
func (f *Fake) Daemons(context.Context) ([]console.DaemonInfo, error) { return f.DaemonList, f.Err }

// Apps answers from AppList.
func (f *Fake) Apps(context.Context) ([]console.AppInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.AppList), f.Err
}

// AddApp enables the app of a known connection.
func (f *Fake) AddApp(_ context.Context, connection string) (console.AppInfo, error) {
	return f.editApp(connection, true)
}

// RemoveApp disables it.
func (f *Fake) RemoveApp(_ context.Context, connection string) (console.AppInfo, error) {
	return f.editApp(connection, false)
}

func (f *Fake) editApp(connection string, enabled bool) (console.AppInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return console.AppInfo{}, f.Err
	}
	for i := range f.AppList {
		if f.AppList[i].Connection == connection {
			f.AppList[i].Enabled = enabled
			return f.AppList[i], nil
		}
	}
	return console.AppInfo{}, fmt.Errorf("push connection %q: %w", connection, triggerd.ErrNotFound)
}

// Ready answers Readiness.
func (f *Fake) Ready(context.Context) console.Readiness { return f.Readiness }

func cut[T any](list []T, limit int) []T {
	if limit == 0 {
		limit = 50
	}
	if limit > 0 && len(list) > limit {
		return list[:limit]
	}
	return list
}

// find prefers a whole name over a prefix, and refuses a prefix of several things.
func find[T any](list []T, what, ref string, names func(T) []string) (T, error) {
	var hits []T
	var shown []string
	for _, item := range list {
		ns := names(item)
		if slices.Contains(ns, ref) {
			return item, nil
		}
		if slices.ContainsFunc(ns[1:], func(n string) bool { return strings.HasPrefix(n, ref) }) || strings.HasPrefix(ns[0], ref) && what == "turn" {
			hits, shown = append(hits, item), append(shown, ns[0])
		}
	}
	var none T
	switch len(hits) {
	case 0:
		return none, fmt.Errorf("%s %q: %w", what, ref, triggerd.ErrNotFound)
	case 1:
		return hits[0], nil
	}
	return none, fmt.Errorf("%w: %q fits several: %s", triggerd.ErrConflict, ref, strings.Join(shown, ", "))
}
