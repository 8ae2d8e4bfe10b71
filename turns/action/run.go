package action

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/turns"
)

// Secrets looks up a secret by name. It is asked anew at each attempt, and its errors must not hold the value.
type Secrets func(name string) (string, error)

// Redact replaces secrets in what is about to be kept. It may change its argument and return it.
type Redact func([]byte) []byte

const (
	// maxCause bounds a cause, which is one line for people.
	maxCause = 500
	// minScrub is the shortest secret that is replaced wherever it stands: a shorter one could be part of ordinary words (P35).
	minScrub = 8
	// redacted stands where a secret was.
	redacted = "[redacted]"
)

// base is what all actions share.
type base struct {
	secrets   Secrets
	redact    Redact
	usesInput bool // a template mentions `input`
}

// compile compiles the template of one field.
func (b *base) compile(field, src string) (*expr.Template, error) {
	t, err := expr.CompileTemplate(src, expr.Action)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	b.usesInput = b.usesInput || !t.Static() && strings.Contains(src, "input")
	return t, nil
}

// compileMap compiles one template for each name.
func (b *base) compileMap(field string, src map[string]string) (map[string]*expr.Template, error) {
	out := make(map[string]*expr.Template, len(src))
	var errs []error
	for name, text := range src {
		t, err := b.compile(field+"."+name, text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[name] = t
	}
	return out, errors.Join(errs...)
}

// failure is an outcome other than done, on its way up.
type failure struct {
	verb  triggerd.Verb
	cause string
}

func (f *failure) Error() string { return f.cause }

func (f *failure) outcome() triggerd.Outcome { return triggerd.Outcome{Verb: f.verb, Cause: f.cause} }

func dead(format string, args ...any) *failure {
	return &failure{verb: triggerd.Dead, cause: fmt.Sprintf(format, args...)}
}

func retry(format string, args ...any) *failure {
	return &failure{verb: triggerd.Retry, cause: fmt.Sprintf(format, args...)}
}

// run is one attempt of one action.
type run struct {
	*turns.Attempt
	ctx       context.Context
	vars      *expr.Vars
	began     time.Time
	lookup    Secrets
	used      []string // values of the secrets that this attempt has seen
	secretErr error    // the last lookup that failed
}

// attempt runs do with panics recovered and secrets kept out of what remains of it.
func (b *base) attempt(ctx context.Context, a *turns.Attempt, do func(*run) triggerd.Outcome) (out triggerd.Outcome) {
	r := &run{Attempt: a, ctx: ctx, began: time.Now(), lookup: b.secrets}
	defer func() {
		if p := recover(); p != nil {
			out = dead("the action panicked: %v", p).outcome()
		}
		out.Cause = b.clean(r, out.Cause)
	}()
	if f := r.interrupted(); f != nil {
		return f.outcome()
	}
	input := a.Input
	if !a.HasInput && input == nil && b.usesInput {
		input = expr.DecodePayload(a.Event.ContentType, a.Event.Payload)
	}
	key := a.IdempotencyKey()
	r.vars = expr.NewVars(&a.Event, a.Connection).ForAction(input, expr.Turn{
		Key: key, Trigger: a.Trigger, Connection: a.Connection, Attempt: a.Number,
		Thread: a.Thread, IdempotencyKey: key, Opened: a.Opened,
	})
	return do(r)
}

// clean makes a cause fit to be kept and shown: no secret, one line, bounded.
func (b *base) clean(r *run, cause string) string {
	if cause == "" {
		return ""
	}
	for _, v := range r.used {
		for _, form := range []string{v, url.QueryEscape(v), url.PathEscape(v)} {
			cause = strings.ReplaceAll(cause, form, redacted)
		}
	}
	if b.redact != nil {
		cause = string(b.redact([]byte(cause)))
	}
	return oneLine(cause, maxCause)
}

// secret looks up a secret and remembers what not to show.
func (r *run) secret(name string) (string, error) {
	if r.lookup == nil {
		r.secretErr = fmt.Errorf("secret %q: this action has no secrets", name)
		return "", r.secretErr
	}
	v, err := r.lookup(name)
	if err != nil {
		r.secretErr = fmt.Errorf("secret %q: %w", name, err)
		return "", r.secretErr
	}
	if len(v) >= minScrub {
		r.used = append(r.used, v)
	}
	return v, nil
}

// text renders a template to a text; what names it in a cause.
func (r *run) text(what string, t *expr.Template) (string, *failure) {
	s, err := t.Text(r.vars, r.secret)
	return s, r.renderFailure(what, err)
}

// bytes renders a template to a body.
func (r *run) bytes(what string, t *expr.Template) ([]byte, *failure) {
	b, err := t.Bytes(r.vars, r.secret)
	return b, r.renderFailure(what, err)
}

func (r *run) renderFailure(what string, err error) *failure {
	switch {
	case err == nil:
		return nil
	case r.secretErr != nil:
		return retry("render %s: %v", what, r.secretErr)
	}
	return dead("render %s: %v", what, err)
}

// interrupted is the failure for a context that has ended, else nil.
func (r *run) interrupted() *failure {
	if r.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(r.ctx)
	if !errors.Is(cause, turns.ErrTimeout) && !errors.Is(cause, context.DeadlineExceeded) {
		return retry("%v", cause)
	}
	after := time.Since(r.began)
	if deadline, ok := r.ctx.Deadline(); ok && deadline.After(r.began) {
		after = deadline.Sub(r.began) // the limit itself, rather than how long the end took
	}
	unit := 10 * time.Millisecond // the attempt began a little after its limit started to run
	if after > time.Second {
		unit = 100 * time.Millisecond
	}
	return retry("timed out after %v", after.Round(unit))
}

// oneLine makes a text one line of at most limit bytes without control characters or broken UTF-8.
func oneLine(s string, limit int) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	const dots = "..."
	cut := limit - len(dots)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + dots
}
