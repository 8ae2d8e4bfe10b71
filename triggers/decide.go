package triggers

import (
	"fmt"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

// Reserved connections.
const (
	// ManualConnection holds the events of `fire`; only the trigger that Event.Target names may match one.
	ManualConnection = "manual"
	// OwnConnection holds the daemon's own events, such as turn.dead.
	OwnConnection = "triggerd"
	// OwnTriggerHeader is the header of an own event that holds the key of the trigger that it is about.
	OwnTriggerHeader = "trigger"
)

// Kind is what became of an event at a trigger.
type Kind string

// The kinds of a [Verdict].
const (
	Matched    Kind = "matched"     // a turn is owed
	Filtered   Kind = "filtered"    // the event's type or the filter says no
	Errored    Kind = "error"       // an expression failed: nobody knows whether a turn is owed, so it is shown
	Disabled   Kind = "disabled"    // the trigger is switched off in the configuration
	NotStarted Kind = "not_started" // the event was stored before the trigger's time
)

// Verdict is one trigger's answer to one event.
type Verdict struct {
	Trigger  string // key
	Name     string // present name
	Kind     Kind
	Reason   string // one line; for Filtered and Errored it may quote values of the event
	Thread   string // the thread's key; "" = none
	Lane     string // what is run one at a time; "" = nothing is waited for
	Input    any    // the rendered input, a plain value for reading only (see expr.Template)
	HasInput bool   // the trigger has an input template
}

// occurrence is an event while triggers look at it. The payload is decoded once for all of them, and only if one asks.
type occurrence struct {
	*triggerd.Event
	vars *expr.Vars
}

func newOccurrence(ev *triggerd.Event) *occurrence {
	return &occurrence{Event: ev, vars: expr.NewVars(ev, ev.Connection)}
}

// decide gives t's whole verdict. explain asks for the reason of a filter's no, which costs more than the no itself.
func (t *trigger) decide(ev *occurrence, explain bool) Verdict {
	v := Verdict{Trigger: t.def.Key, Name: t.def.Name}
	switch {
	case t.def.Disabled:
		v.Kind, v.Reason = Disabled, "the trigger has enabled: false"
		return v
	case ev.Seq != 0 && ev.Seq <= t.def.StartSeq:
		v.Kind, v.Reason = NotStarted, fmt.Sprintf("event %d came before the trigger, which starts after event %d", ev.Seq, t.def.StartSeq)
		return v
	case ev.Connection == OwnConnection && ev.Headers[OwnTriggerHeader] == t.def.Key:
		v.Kind, v.Reason = Filtered, "a trigger does not fire on its own turns"
		return v
	case ev.Connection == ManualConnection:
		v.Kind, v.Reason = Matched, "fired by hand: event types and filter do not apply"
	default:
		t.match(ev, &v, explain)
	}
	if v.Kind == Matched {
		t.open(ev, &v)
	}
	return v
}

// match applies the event types and the filter.
func (t *trigger) match(ev *occurrence, v *Verdict, explain bool) {
	glob, ok := t.matchType(ev.Type)
	if !ok {
		v.Kind = Filtered
		if explain {
			v.Reason = t.whyNotType(ev.Type)
		}
		return
	}
	if t.filter != nil {
		yes, err := t.filter.Bool(ev.vars)
		switch {
		case err != nil:
			v.Kind, v.Reason = Errored, "filter: "+err.Error()
			return
		case !yes:
			v.Kind = Filtered
			if explain {
				v.Reason = "filter: " + t.filter.WhyFalse(ev.vars)
			}
			return
		}
	}
	v.Kind, v.Reason = Matched, t.reasons[glob]
}

// open evaluates what the turn needs from the event.
func (t *trigger) open(ev *occurrence, v *Verdict) {
	if t.thread != nil {
		key, err := t.thread.Key(ev.vars)
		if err != nil {
			v.Kind, v.Reason = Errored, "thread: "+err.Error()
			return
		}
		v.Thread = key
	}
	if t.input != nil {
		input, err := t.input.Render(ev.vars, nil)
		if err != nil {
			v.Kind, v.Reason, v.Thread = Errored, "input: "+err.Error(), ""
			return
		}
		v.Input, v.HasInput = input, true
	}
	switch {
	case v.Thread != "":
		v.Lane = t.lane + v.Thread
	case t.def.Overlap != OverlapAllow:
		v.Lane = t.def.Key
	}
}
