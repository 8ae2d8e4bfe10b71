package expr

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// chain is a path from one of the scope's names, such as event.payload.?author.name[0], as it stands in an expression.
type chain struct {
	id    int64
	text  string
	root  string
	steps []any // string or int64
	texts []string
}

// chainOf reads e as a chain. shadowed are the names of comprehension variables around it.
func chainOf(e ast.Expr, shadowed map[string]int) (chain, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		switch name {
		case "event", "request", "input", "turn", "now":
			return chain{id: e.ID(), text: name, root: name}, shadowed[name] == 0
		}
	case ast.SelectKind:
		s := e.AsSelect()
		return extend(e, s.Operand(), s.FieldName(), "."+s.FieldName(), shadowed)
	case ast.CallKind:
		return chainOfCall(e, shadowed)
	}
	return chain{}, false
}

func chainOfCall(e ast.Expr, shadowed map[string]int) (chain, bool) {
	call := e.AsCall()
	if len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
		return chain{}, false
	}
	open := "["
	switch call.FunctionName() {
	case operators.OptSelect:
		name, ok := call.Args()[1].AsLiteral().(types.String)
		if !ok {
			return chain{}, false
		}
		return extend(e, call.Args()[0], string(name), ".?"+string(name), shadowed)
	case operators.OptIndex:
		open = "[?"
	case operators.Index:
	default:
		return chain{}, false
	}
	switch key := call.Args()[1].AsLiteral().(type) {
	case types.String:
		return extend(e, call.Args()[0], string(key), open+strconv.Quote(string(key))+"]", shadowed)
	case types.Int:
		return extend(e, call.Args()[0], int64(key), open+strconv.FormatInt(int64(key), 10)+"]", shadowed)
	}
	return chain{}, false
}

func extend(e, operand ast.Expr, step any, text string, shadowed map[string]int) (chain, bool) {
	c, ok := chainOf(operand, shadowed)
	c.id, c.text, c.steps, c.texts = e.ID(), c.text+text, append(c.steps, step), append(c.texts, c.text)
	return c, ok
}

// chains are the longest paths in e, each once, in the order of the source.
func chains(e ast.Expr) []chain {
	var out []chain
	seen := map[string]bool{}
	walk(e, map[string]int{}, func(e ast.Expr, shadowed map[string]int) bool {
		c, ok := chainOf(e, shadowed)
		if ok && !seen[c.text] {
			seen[c.text] = true
			out = append(out, c)
		}
		return !ok
	})
	return out
}

// walk visits e and its parts while visit wants more. shadowed counts the comprehension variables around a part, by name.
func walk(e ast.Expr, shadowed map[string]int, visit func(e ast.Expr, shadowed map[string]int) bool) {
	if !visit(e, shadowed) {
		return
	}
	parts := children(e)
	if e.Kind() == ast.ComprehensionKind {
		c := e.AsComprehension()
		walk(parts[0], shadowed, visit) // the range does not see the variables
		parts = parts[1:]
		for _, name := range []string{c.IterVar(), c.IterVar2(), c.AccuVar()} {
			shadowed[name]++
			defer func() { shadowed[name]-- }()
		}
	}
	for _, part := range parts {
		walk(part, shadowed, visit)
	}
}

// sight is what a chain leads to.
type sight struct {
	value   any
	missing bool
	at      int // the step that failed
	holder  any // what that step was taken on
}

// look follows a chain through the values of v.
func (c chain) look(v *Vars) sight {
	value, ok := v.ResolveName(c.root)
	if !ok {
		return sight{missing: true}
	}
	for i, step := range c.steps {
		next, ok := take(value, step)
		if !ok {
			return sight{missing: true, at: i, holder: value}
		}
		value = next
	}
	return sight{value: value}
}

func take(value, step any) (any, bool) {
	switch v := value.(type) {
	case *objectVal:
		name, _ := step.(string)
		f, ok := v.field(name)
		if !ok {
			return nil, false
		}
		return f.get(v.vars), true
	case map[string]any:
		name, isName := step.(string)
		e, ok := v[name]
		return e, ok && isName
	case map[string]string:
		name, isName := step.(string)
		e, ok := v[name]
		return e, ok && isName
	case []any:
		i, isIndex := step.(int64)
		if !isIndex || i < 0 || i >= int64(len(v)) {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}

// missingText says what the failed step of a sight found instead.
func (c chain) missingText(s sight) string {
	if len(c.steps) == 0 {
		return c.text + " does not exist here"
	}
	holder := c.texts[s.at]
	switch step := c.steps[s.at].(type) {
	case int64:
		if l, ok := s.holder.([]any); ok {
			return fmt.Sprintf("%s has %d entries, there is no [%d]", holder, len(l), step)
		}
		return fmt.Sprintf("%s is %s, there is no [%d]", holder, typeName(s.holder), step)
	case string:
		switch h := s.holder.(type) {
		case map[string]string:
			if _, lower := h[strings.ToLower(step)]; lower {
				return fmt.Sprintf("%s has no such key: %q (names are in lower case)", holder, step)
			}
			return fmt.Sprintf("%s has no such key: %q", holder, step)
		case map[string]any, *objectVal:
			return fmt.Sprintf("%s has no such field: %q", holder, step)
		}
		return fmt.Sprintf("%s is %s, there is no such field: %q", holder, typeName(s.holder), step)
	}
	return holder
}

// maxShown bounds a value in an explanation, in characters.
const maxShown = 80

// show is a value with its type, on one line.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case []byte:
		return fmt.Sprintf("%d bytes", len(v))
	case *objectVal:
		return v.typ.TypeName()
	case string:
		return clip(strconv.Quote(head(v)), maxShown) + " (string)"
	}
	text := ""
	if ts, ok := v.(types.Timestamp); ok {
		v = ts.Time
	}
	if s, err := textOf(v); err == nil {
		text = clip(oneLine(head(s)), maxShown)
	}
	return text + " (" + typeName(v) + ")"
}

// head is enough of s for an explanation, so that a long text is not worked through to be cut.
func head(s string) string {
	const most = 4 * maxShown
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
