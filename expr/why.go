package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// maxClause bounds a clause in an explanation, in characters.
const maxClause = 200

// WhyFalse explains, on one line, an expression that [Program.Bool] found false: the first clause of its && chain that is false,
// and the values that the clause saw, with their types; what is missing is named. It quotes values of the event.
func (p *Program) WhyFalse(v *Vars) string {
	parts := clauses(p.c.src)
	for _, src := range parts {
		c := p.c
		if len(parts) > 1 {
			part, err := compile(src, p.c.scope, false)
			if err != nil {
				continue // a clause is an expression of its own; if not, the whole is explained below
			}
			c = part
		}
		out, err := c.eval(v)
		if err == nil && out == types.False {
			return fmt.Sprintf("%s is false%s", clip(oneLine(src), maxClause), c.seen(v))
		}
	}
	return fmt.Sprintf("%s is false%s", clip(oneLine(p.c.src), maxClause), p.c.seen(v))
}

// seen lists what the chains of an expression lead to: ": event.payload.n = 3 (int), ...".
func (c *compiled) seen(v *Vars) string {
	var parts []string
	for _, ch := range chains(c.ast.Expr()) {
		if ch.root == "now" {
			continue
		}
		if s := ch.look(v); s.missing {
			parts = append(parts, ch.missingText(s))
		} else {
			parts = append(parts, ch.text+" = "+show(s.value))
		}
	}
	parts = append(parts, c.mismatches(v)...)
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// mismatches names comparisons that can never be true because of the types: event.payload.n == "3" where n is a number.
func (c *compiled) mismatches(v *Vars) []string {
	var out []string
	walk(c.ast.Expr(), map[string]int{}, func(e ast.Expr, shadowed map[string]int) bool {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Equals {
			return true
		}
		args := e.AsCall().Args()
		for i, a := range args {
			ch, ok := chainOf(a, shadowed)
			if !ok || args[1-i].Kind() != ast.LiteralKind {
				continue
			}
			s := ch.look(v)
			got, want := typeName(s.value), args[1-i].AsLiteral().Type().TypeName()
			if !s.missing && !sameKind(got, want) {
				out = append(out, fmt.Sprintf("%s never equals %s", withArticle(got), withArticle(want)))
			}
		}
		return true
	})
	return out
}

func withArticle(typ string) string {
	switch typ {
	case "null", "null_type":
		return "null"
	case "bytes":
		return "bytes"
	case "int":
		return "an int"
	}
	return "a " + typ
}

// sameKind reports whether values of these types can be equal. Comparing with null is asking whether there is a value: no mistake.
func sameKind(got, literal string) bool {
	numeric := func(t string) bool { return t == "int" || t == "uint" || t == "double" }
	return got == literal || literal == "null_type" || numeric(got) && numeric(literal)
}

// explain turns an evaluation error into one for people: it names the field that is missing, or the types of what was there.
func (c *compiled) explain(v *Vars, err error) error {
	cancelled := interpreter.EvalCancelledError{}
	if errors.Is(err, errTooExpensive) || errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Errorf("the expression is too expensive for this value: it needs more than %d cost units", CostLimit)
	}
	found := chains(c.ast.Expr())
	msg := err.Error()
	if strings.HasPrefix(msg, "no such key") || strings.HasPrefix(msg, "index out of bounds") {
		if text, ok := blame(found, v, err); ok {
			return errors.New(text)
		}
	}
	msg = clip(oneLine(msg), maxMessage)
	var kinds []string
	for _, ch := range found {
		if s := ch.look(v); !s.missing && ch.root != "now" {
			kinds = append(kinds, ch.text+" is "+typeName(s.value))
		}
	}
	if len(kinds) > 0 {
		msg += " (" + strings.Join(kinds, ", ") + ")"
	}
	return errors.New(msg)
}

// blame finds the chain that an error is about: the one at the node that the error names, else the first whose failing step it names.
func blame(found []chain, v *Vars, err error) (string, bool) {
	var failed *types.Err
	if errors.As(err, &failed) {
		for _, ch := range found {
			if s := ch.look(v); s.missing && ch.id == failed.NodeID() {
				return ch.missingText(s), true
			}
		}
	}
	for _, ch := range found {
		s := ch.look(v)
		if s.missing && len(ch.steps) > 0 && strings.HasSuffix(err.Error(), fmt.Sprintf(": %v", ch.steps[s.at])) {
			return ch.missingText(s), true
		}
	}
	return "", false
}
