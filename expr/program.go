package expr

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	c *compiled
}

// CompileBool compiles an expression that decides. A result that can only be something other than a bool is refused here, one
// whose type depends on the payload is checked when it runs. The error is an [*Error].
func CompileBool(src string, s Scope) (*Program, error) {
	c, err := compile(src, s, false)
	if err != nil {
		return nil, err
	}
	switch c.out.Kind() {
	case types.BoolKind, types.DynKind, types.AnyKind:
		return &Program{c}, nil
	}
	hint := ""
	if isOptional(c.out) {
		hint = "; end it with .orValue(false)"
	}
	return nil, errorAt(src, 0, fmt.Sprintf("the result is %s, need bool%s", cel.FormatCELType(c.out), hint))
}

// CompileKey compiles an expression that names something: a thread, an event id. The error is an [*Error].
func CompileKey(src string, s Scope) (*Program, error) {
	c, err := compile(src, s, false)
	if err != nil {
		return nil, err
	}
	out := c.out
	if isOptional(out) {
		out = out.Parameters()[0]
	}
	switch out.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind,
		types.NullTypeKind, types.DynKind, types.AnyKind, types.TypeParamKind:
		return &Program{c}, nil
	}
	if out.IsAssignableType(cel.NullType) && out.IsAssignableType(cel.StringType) { // event.cursor
		return &Program{c}, nil
	}
	return nil, errorAt(src, 0, fmt.Sprintf("the result is %s, need string, a number, bool or timestamp", cel.FormatCELType(c.out)))
}

func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1
}

// Source is the text that was compiled.
func (p *Program) Source() string { return p.c.src }

// Bool evaluates the expression. The error says what is missing or of the wrong type; it may quote values of the event,
// so it belongs in a verdict and not in a log.
func (p *Program) Bool(v *Vars) (bool, error) {
	out, err := p.c.eval(v)
	if err != nil {
		return false, p.c.explain(v, err)
	}
	if b, ok := out.(types.Bool); ok {
		return bool(b), nil
	}
	return false, fmt.Errorf("the result is %s, need bool", valueType(out))
}

// Key evaluates the expression and writes the result as a text, the same for equal values: integers in decimal digits, whole doubles
// likewise, timestamps in RFC 3339 and UTC. Null and an empty optional are "". Lists, maps, bytes, durations, NaN, texts with NUL or
// invalid UTF-8 and those over [MaxKey] bytes are errors.
func (p *Program) Key(v *Vars) (string, error) {
	out, err := p.c.eval(v)
	if err != nil {
		return "", p.c.explain(v, err)
	}
	key, err := keyOf(out)
	if err != nil {
		return "", err
	}
	switch {
	case len(key) > MaxKey:
		return "", fmt.Errorf("the key has %d bytes, the limit is %d", len(key), MaxKey)
	case strings.IndexByte(key, 0) >= 0:
		return "", errors.New("the key holds a NUL character")
	case !utf8.ValidString(key):
		return "", errors.New("the key is not valid UTF-8")
	}
	return key, nil
}

func keyOf(v ref.Val) (string, error) {
	switch v := v.(type) {
	case types.Null:
		return "", nil
	case *types.Optional:
		if !v.HasValue() {
			return "", nil
		}
		return keyOf(v.GetValue())
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	case types.Double:
		return doubleKey(float64(v))
	case types.Timestamp:
		return v.Time.UTC().Format(time.RFC3339Nano), nil
	}
	return "", fmt.Errorf("the result is %s, need string, a number, bool or timestamp", valueType(v))
}

// doubleKey writes 3.0 as 3, because the payloads 3 and 3.0 name the same thing.
func doubleKey(f float64) (string, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "", fmt.Errorf("the result is %v, which names nothing", f)
	case f == 0:
		return "0", nil
	case f == math.Trunc(f) && math.Abs(f) < 1<<64:
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	return strconv.FormatFloat(f, 'g', -1, 64), nil
}

func valueType(v ref.Val) string {
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return "an empty optional"
		}
		return "an optional " + valueType(o.GetValue())
	}
	if _, ok := v.(types.Null); ok {
		return "null"
	}
	return v.Type().TypeName()
}

// eval runs the expression. It never panics.
func (c *compiled) eval(vars interpreter.Activation) (out ref.Val, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("evaluate: %v", r)
		}
	}()
	out, _, err = c.prog.Eval(vars)
	if err == nil && out == nil {
		err = errors.New("the expression gave no value")
	}
	if err == nil && types.IsUnknownOrError(out) {
		err = fmt.Errorf("the expression gave %v", out)
	}
	return out, err
}
