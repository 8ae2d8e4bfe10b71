package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// CEL charges for a call when it has returned. That is too late for the few functions whose one call can take the square of its
// arguments in time or memory: s.replace("a", t) makes a terabyte of two payload fields of a megabyte. Those are asked before.

// errTooExpensive is the failure of a call that is not begun.
var errTooExpensive = errors.New("too expensive")

// forecast is what a call will cost at least, in cost units.
type forecast func(args []ref.Val) uint64

func forecasts(function string) (forecast, bool) {
	switch function {
	case "distinct", "sets.contains", "sets.equivalent", "sets.intersects", "hasOnly", "hasAny", "hasAll", "hasExactly":
		return pairs, true
	case "matches":
		return regexWork, true
	case "indexOf", "lastIndexOf":
		return search, true
	case "replace":
		return replaced, true
	case "join":
		return joined, true
	}
	return nil, false
}

// pairs is for functions that compare each entry with each other one.
func pairs(args []ref.Val) uint64 {
	other := args[len(args)-1]
	return length(args[0]) * length(other) / unit
}

// regexWork is the text times the pattern, as the matcher walks both.
func regexWork(args []ref.Val) uint64 {
	if len(args) != 2 {
		return 0
	}
	return (1 + textLength(args[0])/unit) * (1 + textLength(args[1])/4)
}

// search is for functions that compare the second text at each place of the first.
func search(args []ref.Val) uint64 {
	if len(args) < 2 {
		return 0
	}
	return textLength(args[0]) / unit * (textLength(args[1]) / unit)
}

func replaced(args []ref.Val) uint64 {
	if len(args) < 3 {
		return 0
	}
	text, ok1 := args[0].(types.String)
	old, ok2 := args[1].(types.String)
	if !ok1 || !ok2 {
		return 0
	}
	return uint64(strings.Count(string(text), string(old))) * textLength(args[2]) / unit
}

func joined(args []ref.Val) uint64 {
	if len(args) != 2 {
		return 0
	}
	if _, ok := args[0].(traits.Lister); !ok {
		return 0
	}
	return length(args[0]) * textLength(args[1]) / unit
}

// guarded are the implementations of these functions that ask first, by the name of the function.
func guarded(env *cel.Env) (map[string][]*functions.Overload, error) {
	out := map[string][]*functions.Overload{}
	for name, declared := range env.Functions() {
		f, ok := forecasts(name)
		if !ok {
			continue
		}
		bindings, err := declared.Bindings()
		if err != nil {
			return nil, fmt.Errorf("read the bindings of %s: %w", name, err)
		}
		for _, b := range bindings {
			out[name] = append(out[name], guard(b, f))
		}
	}
	return out, nil
}

// guard is an overload that is not begun where it would go over the limit.
func guard(o *functions.Overload, f forecast) *functions.Overload {
	g := *o
	if o.Unary != nil {
		g.Unary = func(v ref.Val) ref.Val {
			if f([]ref.Val{v}) > CostLimit {
				return types.WrapErr(errTooExpensive)
			}
			return o.Unary(v)
		}
	}
	if o.Binary != nil {
		g.Binary = func(a, b ref.Val) ref.Val {
			if f([]ref.Val{a, b}) > CostLimit {
				return types.WrapErr(errTooExpensive)
			}
			return o.Binary(a, b)
		}
	}
	if o.Function != nil {
		g.Function = func(args ...ref.Val) ref.Val {
			if len(args) > 0 && f(args) > CostLimit {
				return types.WrapErr(errTooExpensive)
			}
			return o.Function(args...)
		}
	}
	return &g
}

// guards are the options with which the expression e calls the guarded implementations.
func (s *setup) guards(e ast.Expr) []cel.ProgramOption {
	var out []cel.ProgramOption
	done := map[string]bool{}
	var visit func(ast.Expr)
	visit = func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			name := e.AsCall().FunctionName()
			if overloads := s.guarded[name]; !done[name] && len(overloads) > 0 {
				done[name] = true
				//lint:ignore SA1019 what it recommends instead declares functions; nothing else replaces one that is there
				out = append(out, cel.Functions(overloads...))
			}
		}
		for _, c := range children(e) {
			visit(c)
		}
	}
	visit(e)
	return out
}
