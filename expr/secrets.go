package expr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// secretsVal is `secrets` while one expression runs. It looks a secret up when the expression reaches it.
type secretsVal struct {
	lookup func(name string) (string, error)
	err    error // of the lookup; the only error of such an expression that is safe to show
}

// Get implements traits.Indexer.
func (s *secretsVal) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.NewErr("no such key: %v", index)
	}
	value, err := s.find(string(name))
	if err != nil {
		s.err = fmt.Errorf("secret %q: %w", string(name), err)
		return types.WrapErr(s.err)
	}
	return types.String(value)
}

func (s *secretsVal) find(name string) (string, error) {
	if s.lookup == nil {
		return "", errors.New("secrets are not available here")
	}
	return s.lookup(name)
}

// ConvertToNative implements ref.Val: the whole map of secrets never leaves.
func (s *secretsVal) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New("secrets can only be used by name")
}

// ConvertToType implements ref.Val.
func (s *secretsVal) ConvertToType(ref.Type) ref.Val {
	return types.NewErr("secrets can only be used by name")
}

// Equal implements ref.Val.
func (s *secretsVal) Equal(ref.Val) ref.Val { return types.False }

// Type implements ref.Val.
func (s *secretsVal) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (s *secretsVal) Value() any { return s }

// secretNames finds the secrets that an expression uses, sorted. Any use other than by a name that is written out is an error:
// what a configuration needs must be known when it is loaded.
func secretNames(src string, a *ast.AST, allowed bool) ([]string, *Error) {
	names := map[string]bool{}
	var problem *Error
	fail := func(e ast.Expr, msg string) {
		if problem == nil {
			problem = errorAt(src, offsetOf(src, a, e.ID()), msg)
		}
	}
	var visit func(e ast.Expr)
	visit = func(e ast.Expr) {
		if name, ok := secretName(e); ok && allowed {
			names[name] = true
			return
		}
		switch {
		case e.Kind() == ast.IdentKind && e.AsIdent() == "secrets":
			if allowed {
				fail(e, `use a secret by its name: secrets.NAME or secrets["NAME"]`)
			} else {
				fail(e, "secrets can be used in the texts of actions and connections only, never to decide")
			}
		case e.Kind() == ast.ComprehensionKind && (e.AsComprehension().IterVar() == "secrets" || e.AsComprehension().IterVar2() == "secrets"):
			fail(e, "the name secrets is taken")
		}
		for _, c := range children(e) {
			visit(c)
		}
	}
	visit(a.Expr())
	return slices.Sorted(maps.Keys(names)), problem
}

func secretName(e ast.Expr) (string, bool) {
	isSecrets := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "secrets" }
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), isSecrets(s.Operand()) && !s.IsTestOnly()
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() == operators.Index && isSecrets(c.Args()[0]) && c.Args()[1].Kind() == ast.LiteralKind {
			name, ok := c.Args()[1].AsLiteral().(types.String)
			return string(name), ok
		}
	}
	return "", false
}
