package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Template is a compiled text with `${{ CEL }}` in it. It is safe for concurrent use.
//
// An expression ends at the first `}}` that is not in one of its strings, comments or maps. `$${{` is a literal `${{`.
// A template that is one expression and nothing else (a final newline, as YAML's block style adds, aside) keeps the type
// of the expression.
type Template struct {
	src     string
	parts   []part
	single  bool
	static  any // the result where there is no expression, made once
	secrets []string
}

// part is either text or an expression.
type part struct {
	text string
	expr *compiled
}

// CompileTemplate compiles a template; a text without expressions is one as well, the empty text too. The error is an [*Error]
// with its place in src.
func CompileTemplate(src string, s Scope) (*Template, error) {
	t := &Template{src: src}
	names := map[string]bool{}
	var text strings.Builder
	rest := 0
	for {
		i := strings.Index(src[rest:], "${{")
		if i < 0 {
			break
		}
		open := rest + i
		if i > 0 && src[open-1] == '$' {
			text.WriteString(src[rest:open-1] + "${{")
			rest = open + len("${{")
			continue
		}
		text.WriteString(src[rest:open])
		end, err := t.addExpression(open, s, &text, names)
		if err != nil {
			return nil, err
		}
		rest = end
	}
	text.WriteString(src[rest:])
	t.finish(text.String())
	t.secrets = slices.Sorted(maps.Keys(names))
	return t, nil
}

// addExpression compiles the expression whose `${{` is at open, after the text before it, and returns where it ends.
func (t *Template) addExpression(open int, s Scope, text *strings.Builder, names map[string]bool) (int, error) {
	start := open + len("${{")
	end, quote, ok := expressionEnd(t.src, start)
	switch {
	case !ok && quote >= 0:
		return 0, errorAt(t.src, quote, "a string in this expression has no end")
	case !ok:
		return 0, errorAt(t.src, open, "${{ without its }} (write $${{ for a literal ${{)")
	}
	c, err := compile(t.src[start:end], s, true)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return 0, e.shift(t.src, start)
		}
		return 0, err
	}
	if text.Len() > 0 {
		t.parts = append(t.parts, part{text: text.String()})
		text.Reset()
	}
	t.parts = append(t.parts, part{expr: c})
	for _, name := range c.secrets {
		names[name] = true
	}
	return end + len("}}"), nil
}

func (t *Template) finish(text string) {
	if len(t.parts) == 1 && t.parts[0].expr != nil && (text == "" || text == "\n" || text == "\r\n") {
		t.single = true
		return
	}
	if text != "" {
		t.parts = append(t.parts, part{text: text})
	}
	if t.Static() {
		t.static = t.StaticPrefix()
	}
}

// Source is the text that was compiled.
func (t *Template) Source() string { return t.src }

// Static reports whether there is no expression: the result is always the same.
func (t *Template) Static() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].expr == nil
}

// StaticPrefix is the literal text before the first expression: all of it when there is none.
func (t *Template) StaticPrefix() string {
	if len(t.parts) == 0 {
		return ""
	}
	return t.parts[0].text
}

// Secrets are the names of the secrets that the template uses, sorted.
func (t *Template) Secrets() []string { return slices.Clone(t.secrets) }

// Render evaluates the template. A single expression gives its value as a plain one: nil, bool, int64, uint64, float64, string, []byte,
// time.Time in UTC, []any or map[string]any, which may share memory with the payload and is for reading only; a duration
// becomes its text, an empty optional nil. Anything else is a string, as [Template.Text] makes it.
//
// secret looks a secret up by name, when an expression reaches it; nil where there are none. Errors never hold a secret's value:
// where an expression that uses secrets fails, only an error of secret itself is shown. Other errors may quote values of the event.
func (t *Template) Render(v *Vars, secret func(name string) (string, error)) (any, error) {
	switch {
	case t.static != nil:
		return t.static, nil
	case t.single:
		return t.parts[0].expr.plain(v, secret)
	}
	return t.Text(v, secret)
}

// Text evaluates the template to a text. In it null and an empty optional are nothing, lists and maps are compact JSON, numbers are
// written as in JSON, times in RFC 3339 and UTC; bytes must be valid UTF-8.
func (t *Template) Text(v *Vars, secret func(name string) (string, error)) (string, error) {
	if t.Static() {
		return t.StaticPrefix(), nil
	}
	var out strings.Builder
	for _, p := range t.parts {
		out.WriteString(p.text)
		if p.expr == nil {
			continue
		}
		value, err := p.expr.plain(v, secret)
		if err != nil {
			return "", err
		}
		text, err := textOf(value)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// Bytes evaluates the template to a body: as [Template.Text], but bytes go in as they are, valid UTF-8 or not.
func (t *Template) Bytes(v *Vars, secret func(name string) (string, error)) ([]byte, error) {
	var out []byte
	for _, p := range t.parts {
		out = append(out, p.text...)
		if p.expr == nil {
			continue
		}
		value, err := p.expr.plain(v, secret)
		if err != nil {
			return nil, err
		}
		if b, ok := value.([]byte); ok {
			out = append(out, b...)
			continue
		}
		text, err := textOf(value)
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	return out, nil
}

// plain runs an expression of a template and takes its value out of CEL.
func (c *compiled) plain(v *Vars, secret func(name string) (string, error)) (any, error) {
	if len(c.secrets) > 0 {
		return c.plainWithSecrets(v, secret)
	}
	out, err := c.eval(v)
	if err != nil {
		return nil, c.explain(v, err)
	}
	return toPlain(out)
}

// plainWithSecrets keeps the message of a failure to itself: CEL quotes the values that it fails on, and one of them may be a secret,
// or be made of one.
func (c *compiled) plainWithSecrets(v *Vars, secret func(name string) (string, error)) (any, error) {
	s := &secretsVal{lookup: secret}
	out, err := c.eval(withSecrets{v, s})
	if err == nil {
		var value any
		if value, err = toPlain(out); err == nil {
			return value, nil
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return nil, fmt.Errorf("an expression that uses the secrets %s failed; why is not shown, it could quote them", strings.Join(c.secrets, ", "))
}
