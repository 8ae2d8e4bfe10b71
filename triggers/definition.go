package triggers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

// Overlap rules of this version: what happens to an event while a turn of the same lane is unfinished.
const (
	OverlapQueue = "queue"
	OverlapSkip  = "skip"
	OverlapAllow = "allow"
)

// ScopeTrigger is the thread scope that no other trigger shares; "" means the same.
const ScopeTrigger = "trigger"

// Definition is one trigger as far as deciding is concerned. Config versions are stored as JSON, and `explain` compiles them again:
// the names of the fields in JSON stay.
type Definition struct {
	Name        string   `json:"name"`                // present name
	Key         string   `json:"key"`                 // the first name it ever had; part of turn keys
	Connections []string `json:"connections"`         // keys of connections
	Events      []string `json:"events,omitempty"`    // globs over dotted types, see MatchType; none = every type but `gap` and `schedule.missed`
	Filter      string   `json:"filter,omitempty"`    // CEL, bool; "" = every event
	Thread      string   `json:"thread,omitempty"`    // CEL, a key; "" = no thread
	Scope       string   `json:"scope,omitempty"`     // of the thread: "" or "trigger", or a name that triggers share
	Input       *string  `json:"input,omitempty"`     // template; nil = none, the action uses the payload
	Overlap     string   `json:"overlap"`             // queue, skip or allow; the default is resolved before it gets here
	Disabled    bool     `json:"disabled,omitempty"`  // `enabled: false`
	StartSeq    uint64   `json:"start_seq,omitempty"` // stored events up to this sequence were before the trigger's time
}

// FieldError is one problem of one definition.
type FieldError struct {
	Trigger string // present name
	Field   string // name, key, connection, event, filter, thread, scope, input or overlap
	Err     error  // an *expr.Error where the field is an expression or a template
}

// Error names the trigger and the field.
func (e *FieldError) Error() string {
	return fmt.Sprintf("trigger %q: %s: %v", e.Trigger, e.Field, e.Err)
}

// Unwrap gives the problem itself.
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors are the problems that an error of [Compile] joins, in the order of the definitions.
func FieldErrors(err error) []*FieldError {
	var out []*FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, FieldErrors(e)...)
		}
		return out
	}
	if fe := (*FieldError)(nil); errors.As(err, &fe) {
		out = append(out, fe)
	}
	return out
}

// trigger is a definition that is ready to decide.
type trigger struct {
	def     Definition
	order   int // by name, over all
	filter  *expr.Program
	thread  *expr.Program
	input   *expr.Template
	lane    string   // before the thread's key
	reasons []string // of a match, for each glob; made once, because the hot path uses them
}

// compiler compiles definitions. The same text is compiled once: many triggers often share a filter.
type compiler struct {
	bools     map[string]compiledBool
	keys      map[string]compiledBool
	templates map[string]compiledTemplate
	errs      []error
}

type compiledBool struct {
	program *expr.Program
	err     error
}

type compiledTemplate struct {
	template *expr.Template
	err      error
}

func newCompiler() *compiler {
	return &compiler{bools: map[string]compiledBool{}, keys: map[string]compiledBool{}, templates: map[string]compiledTemplate{}}
}

func (c *compiler) fail(d Definition, field string, err error) {
	if err != nil {
		c.errs = append(c.errs, &FieldError{Trigger: d.Name, Field: field, Err: err})
	}
}

func (c *compiler) compile(d Definition) *trigger {
	c.fail(d, "name", triggerd.ValidName(d.Name))
	c.fail(d, "key", triggerd.ValidName(d.Key))
	for _, conn := range d.Connections {
		c.fail(d, "connection", triggerd.ValidName(conn))
	}
	for _, glob := range d.Events {
		c.fail(d, "event", ValidGlob(glob))
	}
	switch d.Overlap {
	case OverlapQueue, OverlapSkip, OverlapAllow:
	default:
		c.fail(d, "overlap", fmt.Errorf("%q is not one of queue, skip, allow", d.Overlap))
	}
	t := &trigger{def: d, lane: d.Key + "/"}
	if d.Scope != "" && d.Scope != ScopeTrigger {
		c.fail(d, "scope", triggerd.ValidName(d.Scope))
		t.lane = "@" + d.Scope + "/"
	}
	if d.Filter != "" {
		t.filter = c.bool(d)
	}
	if d.Thread != "" {
		t.thread = c.key(d)
	}
	if d.Input != nil {
		t.input = c.template(d)
	}
	t.reasons = matchReasons(d)
	return t
}

func (c *compiler) bool(d Definition) *expr.Program {
	got, ok := c.bools[d.Filter]
	if !ok {
		got.program, got.err = expr.CompileBool(d.Filter, expr.Decision)
		c.bools[d.Filter] = got
	}
	c.fail(d, "filter", got.err)
	return got.program
}

func (c *compiler) key(d Definition) *expr.Program {
	got, ok := c.keys[d.Thread]
	if !ok {
		got.program, got.err = expr.CompileKey(d.Thread, expr.Decision)
		c.keys[d.Thread] = got
	}
	c.fail(d, "thread", got.err)
	return got.program
}

func (c *compiler) template(d Definition) *expr.Template {
	got, ok := c.templates[*d.Input]
	if !ok {
		got.template, got.err = expr.CompileTemplate(*d.Input, expr.Decision)
		c.templates[*d.Input] = got
	}
	c.fail(d, "input", got.err)
	return got.template
}

func matchReasons(d Definition) []string {
	with := ""
	if d.Filter != "" {
		with = ", the filter is true"
	}
	if len(d.Events) == 0 {
		return []string{"every event type but gap and schedule.missed" + with}
	}
	reasons := make([]string, len(d.Events))
	for i, glob := range d.Events {
		reasons[i] = fmt.Sprintf("event %q%s", glob, with)
	}
	return reasons
}

// matchType finds the glob that the type fits.
func (t *trigger) matchType(typ string) (int, bool) {
	if len(t.def.Events) == 0 {
		return 0, !quiet(typ)
	}
	for i, glob := range t.def.Events {
		if MatchType(glob, typ) {
			return i, true
		}
	}
	return 0, false
}

// whyNotType says that no glob fits.
func (t *trigger) whyNotType(typ string) string {
	if len(t.def.Events) == 0 {
		return "event type " + typ + " is matched only where `event` names it"
	}
	quoted := make([]string, len(t.def.Events))
	for i, glob := range t.def.Events {
		quoted[i] = fmt.Sprintf("%q", glob)
	}
	if len(quoted) == 1 {
		return fmt.Sprintf("event %s does not match type %q", quoted[0], typ)
	}
	return fmt.Sprintf("event: none of %s matches type %q", strings.Join(quoted, ", "), typ)
}

// quiet reports whether a type says that something did not come: that events may be missing, or which slots of a schedule did not fire.
// A trigger gets such events only by asking for them.
func quiet(typ string) bool { return typ == "gap" || typ == "schedule.missed" }
