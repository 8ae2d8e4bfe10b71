package cron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

// TickType is the type of every scheduled event.
const TickType = "tick"

// MissedType is the type of the event that says which slots did not fire. Triggers see it only when they ask for it.
const MissedType = "schedule.missed"

// CatchUp says what becomes of slots that passed while nobody was there to fire them.
type CatchUp string

// The rules of catching up.
const (
	CatchUpLatest CatchUp = "latest" // the newest missed slot fires, late; older ones do not
	CatchUpNone   CatchUp = "none"   // no missed slot fires
	CatchUpAll    CatchUp = "all"    // all of them fire, late and in order
)

const (
	// WindowDefault is how old a missed slot may be and still be caught up.
	WindowDefault = 24 * time.Hour
	// LimitDefault is how many missed slots fire at most with [CatchUpAll]: the newest.
	LimitDefault = 100
	// reread is how often the wall clock is read at least: timers do not see sleep and clock steps (promise P13).
	reread = 30 * time.Second
	// grace is how late a slot is not missed yet, whatever the rule of catching up: a busy machine, a short freeze, a restart or a takeover by another
	// daemon is not down-time.
	grace = time.Minute
)

// Source fires an event for each slot of a schedule. The event's id is the slot in UTC (RFC 3339), so a slot fires once,
// whoever fires it. Slots that do not fire are recorded by an event of type [MissedType].
// Its cursor is the last slot with the zone and the expression it belonged to: when those change, the source
// starts from now instead of filling in the past. The first start ever does too.
type Source struct {
	Schedule Schedule
	CatchUp  CatchUp       // "" = latest
	Window   time.Duration // 0 = [WindowDefault]
	Limit    int           // 0 = [LimitDefault]
	Jitter   time.Duration // each slot fires up to this much later, by an amount that is the slot's own in every daemon
	// Count is told of the slots that are dealt with, after they were stored; nil = nobody.
	Count func(state SlotState, slots int)
}

// SlotState is what became of a slot.
type SlotState string

// The states of slots. What becomes of a fired slot's turn (done, skipped, held, dead) is said by the turn.
const (
	SlotFired      SlotState = "fired"      // less than a minute after it was due
	SlotLate       SlotState = "late"       // missed and caught up
	SlotMissed     SlotState = "missed"     // not fired
	SlotBackfilled SlotState = "backfilled" // fired by a person
)

// Tick is the payload of an event.
type Tick struct {
	Scheduled time.Time  `json:"scheduled"`          // the slot, in UTC
	Local     string     `json:"local"`              // the slot in the schedule's zone
	Previous  *time.Time `json:"previous,omitempty"` // the slot before it that was dealt with
	Next      *time.Time `json:"next,omitempty"`     // the slot after it
	LateByMS  int64      `json:"late_by_ms"`         // how long after the slot (and its jitter) the event was made
	JitterMS  int64      `json:"jitter_ms,omitempty"`
	CatchUp   bool       `json:"catch_up"`           // the slot was missed and fires late
	Backfill  string     `json:"backfill,omitempty"` // the batch that opened it
	Schedule  string     `json:"schedule"`
	Timezone  string     `json:"timezone"`
}

// Missed is the payload of a [MissedType] event.
type Missed struct {
	From     time.Time `json:"from"`   // the oldest slot that did not fire
	To       time.Time `json:"to"`     // the newest
	Slots    int       `json:"slots"`  // how many there are, without those that Beyond stands for
	Beyond   bool      `json:"beyond"` // more than these, from From on: older than the window, not counted
	CatchUp  CatchUp   `json:"catch_up"`
	Schedule string    `json:"schedule"`
	Timezone string    `json:"timezone"`
}

// Run fires ticks until ctx ends. A tick that the store cannot take is kept until it can; slots at or before the cursor never fire
// again, so a clock that is set back waits until it has caught up with itself.
func (s *Source) Run(ctx context.Context, rt sources.Runtime) error {
	r := &run{Source: s, rt: rt, emit: sources.Persistent(rt)}
	if err := r.start(ctx); err != nil {
		return stopped(ctx, err)
	}
	rt.Status.Running()
	for {
		wait, err := r.step(ctx, wall())
		if err == nil {
			err = sources.Sleep(ctx, wait)
		}
		if err != nil {
			return stopped(ctx, err)
		}
	}
}

// stopped hides an error that is only the end of ctx.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, triggerd.ErrFenced) {
		return nil
	}
	return err
}

// wall reads the clock without its monotonic part: comparisons must follow the wall, not the timer.
func wall() time.Time { return time.Now().Round(0) }

// run is one life of a source.
type run struct {
	*Source
	rt     sources.Runtime
	emit   sources.Emitter
	last   time.Time // the newest slot that is dealt with
	warned bool      // the clock is behind last, and that was said
}

// start finds the position from which slots are due, and stores it when it is a new one.
func (r *run) start(ctx context.Context) error {
	now := wall().Truncate(time.Second)
	last, same, err := r.parseCursor(r.rt.Cursor)
	switch {
	case r.rt.Cursor == nil:
		r.last = now
	case err != nil:
		r.rt.Log.Error().Err(err).Msg("cursor is unreadable: schedule starts from now, slots before are unknown")
		r.last = now
		gap := sources.Gap("schedule position lost: "+err.Error(), now)
		gap.Cursor = r.cursor(now)
		_, err = r.emit.Emit(ctx, gap)
		return err
	case !same:
		r.last = now
		if last.After(now) {
			r.last = last
		}
		r.rt.Log.Info().Str("schedule", r.Schedule.String()).Msg("schedule changed: it starts from now")
	default:
		r.last = last
		return nil
	}
	_, err = r.emit.EmitPage(ctx, nil, r.cursor(r.last))
	return err
}

// step fires what is due at now and returns how long to wait before the next look.
func (r *run) step(ctx context.Context, now time.Time) (time.Duration, error) {
	next := r.Schedule.Next(r.last)
	if next.IsZero() {
		return reread, nil
	}
	r.checkClock(now)
	if next = next.Add(r.jitter(next)); next.After(now) {
		return min(next.Sub(now), reread), nil
	}
	d := r.due(now)
	if err := r.record(ctx, &d, now); err != nil {
		return 0, err
	}
	for _, slot := range d.late {
		if err := r.fire(ctx, slot, true); err != nil {
			return 0, err
		}
	}
	for _, slot := range d.fresh {
		if err := r.fire(ctx, slot, false); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// record stores which slots do not fire, and the position behind them.
func (r *run) record(ctx context.Context, d *dueSlots, now time.Time) error {
	if d.missed == 0 && !d.beyond {
		return nil
	}
	m := Missed{
		From: d.first.UTC(), To: d.passed.UTC(), Slots: d.missed, Beyond: d.beyond, CatchUp: r.rule(),
		Schedule: r.Schedule.String(), Timezone: r.Schedule.Location().String(),
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode missed slots: %w", err)
	}
	r.rt.Log.Warn().Int("missed", d.missed).Time("first", d.first).Time("last", d.passed).Int("caught_up", len(d.late)).
		Bool("beyond_window", d.beyond).Msg("slots were missed")
	_, err = r.emit.Emit(ctx, triggerd.Event{
		ID: "missed:" + m.From.Format(time.RFC3339) + "/" + m.To.Format(time.RFC3339), Type: MissedType, Time: now,
		ContentType: "application/json", Payload: payload, Cursor: r.cursor(d.passed),
	})
	if err != nil {
		return fmt.Errorf("store missed slots: %w", err)
	}
	r.last = d.passed
	r.count(SlotMissed, d.missed)
	return nil
}

func (r *run) count(state SlotState, slots int) {
	if r.Count != nil {
		r.Count(state, slots)
	}
}

func (r *run) rule() CatchUp { return cmp.Or(r.CatchUp, CatchUpLatest) }

// jitter is how much later than at its time a slot fires: the same in every daemon, and after every restart.
func (r *run) jitter(slot time.Time) time.Duration {
	if r.Jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", identity(r.Schedule), slot.Unix())
	return time.Duration(h.Sum64() % uint64(r.Jitter)).Truncate(time.Millisecond)
}

// checkClock tells operators about a clock that runs behind the slots that fired already.
func (r *run) checkClock(now time.Time) {
	behind := r.last.Sub(now)
	if behind <= reread {
		if r.warned {
			r.rt.Status.Report(nil)
		}
		r.warned = false
		return
	}
	if !r.warned {
		r.warned = true
		err := fmt.Errorf("clock is behind the last slot %s: nothing fires before the clock has passed it", r.last.UTC().Format(time.RFC3339))
		r.rt.Status.Report(err)
		r.rt.Log.Warn().Err(err).Msg("clock was set back")
	}
}

// dueSlots is what a step found between the last slot and now. All that does not fire comes before all that does.
type dueSlots struct {
	missed int       // slots that do not fire, without those beyond the window
	first  time.Time // the oldest of them
	passed time.Time // the newest of them; the edge of the window when there is none in it
	beyond bool      // older ones than the window were missed as well
	late   []time.Time
	fresh  []time.Time
}

func (d *dueSlots) miss(slot time.Time) {
	if d.first.IsZero() {
		d.first = slot
	}
	d.passed = slot
	d.missed++
}

// due sorts the slots that have passed into those that fire and those that do not. What is less than a minute late fires; what passed longer ago was
// missed, and follows the rule of catching up.
func (r *run) due(now time.Time) (d dueSlots) {
	from := r.last
	oldest := now.Add(-cmp.Or(max(r.Window, 0), WindowDefault)).Truncate(time.Second)
	if next := r.Schedule.Next(from); next.Before(oldest) {
		// Slots beyond the window are not counted one by one: there may be millions.
		from = oldest.Add(-time.Second)
		d.beyond, d.first, d.passed = true, next, from
	}
	limit := map[CatchUp]int{CatchUpLatest: 1, CatchUpAll: cmp.Or(max(r.Limit, 0), LimitDefault)}[r.rule()]
	for slot := r.Schedule.Next(from); !slot.IsZero(); slot = r.Schedule.Next(slot) {
		at := slot.Add(r.jitter(slot))
		if at.After(now) {
			break
		}
		if now.Sub(at) < grace {
			d.fresh = append(d.fresh, slot)
			continue
		}
		if d.late = append(d.late, slot); len(d.late) > limit {
			d.miss(d.late[0])
			d.late = d.late[1:]
		}
	}
	if r.rule() == CatchUpLatest && len(d.fresh) > 0 { // a newer one than all of those fires anyway
		for _, slot := range d.late {
			d.miss(slot)
		}
		d.late = nil
	}
	return d
}

// fire stores the tick of a slot, however long that takes.
func (r *run) fire(ctx context.Context, slot time.Time, caughtUp bool) error {
	tick := tickOf(r.Schedule, slot)
	tick.Previous = utc(r.previous())
	jitter := r.jitter(slot)
	tick.LateByMS, tick.JitterMS = max(wall().Sub(slot.Add(jitter)).Milliseconds(), 0), jitter.Milliseconds()
	tick.CatchUp = caughtUp
	ev, err := tick.event()
	if err != nil {
		return err
	}
	ev.Cursor = r.cursor(slot)
	if _, err := r.emit.Emit(ctx, ev); err != nil {
		return fmt.Errorf("store tick %s: %w", ev.ID, err)
	}
	r.last = slot
	if caughtUp {
		r.count(SlotLate, 1)
	} else {
		r.count(SlotFired, 1)
	}
	return nil
}

func tickOf(s Schedule, slot time.Time) Tick {
	return Tick{
		Scheduled: slot.UTC(), Local: slot.In(s.Location()).Format(time.RFC3339), Next: utc(s.Next(slot)),
		Schedule: s.String(), Timezone: s.Location().String(),
	}
}

func (t Tick) event() (triggerd.Event, error) {
	payload, err := json.Marshal(t)
	if err != nil {
		return triggerd.Event{}, fmt.Errorf("encode tick: %w", err)
	}
	return triggerd.Event{ID: t.Scheduled.Format(time.RFC3339), Type: TickType, Time: t.Scheduled, ContentType: "application/json", Payload: payload}, nil
}

// previous is the last position, if that is a slot and not the moment of a first start.
func (r *run) previous() time.Time {
	if !r.Schedule.Next(r.last.Add(-time.Second)).Equal(r.last) {
		return time.Time{}
	}
	return r.last
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// cursor is "<slot> <zone> <expression>".
func (r *run) cursor(slot time.Time) triggerd.Cursor {
	return triggerd.Cursor(slot.UTC().Format(time.RFC3339) + " " + r.identity())
}

func (r *run) identity() string { return r.Schedule.Location().String() + " " + identity(r.Schedule) }

// parseCursor reads a cursor and reports whether it belongs to the present schedule. A bare time does.
func (r *run) parseCursor(c triggerd.Cursor) (last time.Time, same bool, err error) {
	slot, identity, _ := strings.Cut(string(c), " ")
	last, err = time.Parse(time.RFC3339, slot)
	if err != nil {
		return time.Time{}, false, errors.New("stored position is not a time")
	}
	return last, identity == "" || identity == r.identity(), nil
}
