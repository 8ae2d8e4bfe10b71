package expr

import (
	"sort"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// orderedMap walks its keys in order. CEL's own maps walk them as Go does, in any order,
// and then `m.map(k, k)[0]` would decide one way today and another way on a replay.
type orderedMap struct {
	traits.Mapper // without its Fold method, which would bypass Iterator
}

// FindStringKey is the short way of a field access; CEL looks for it.
func (m orderedMap) FindStringKey(key string) (any, bool) {
	if f, ok := m.Mapper.(interface{ FindStringKey(string) (any, bool) }); ok {
		return f.FindStringKey(key)
	}
	return m.Find(types.String(key))
}

// Equal implements ref.Val; CEL's maps compare quickest with their own kind.
func (m orderedMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(orderedMap); ok {
		other = o.Mapper
	}
	return m.Mapper.Equal(other)
}

// IsZeroValue implements traits.Zeroer, for optional.ofNonZeroValue.
func (m orderedMap) IsZeroValue() bool { return m.Size() == types.IntZero }

// Iterator implements traits.Iterable.
func (m orderedMap) Iterator() traits.Iterator {
	keys := make([]ref.Val, 0, int(m.Size().(types.Int)))
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	sort.Slice(keys, func(i, j int) bool { return keyLess(keys[i], keys[j]) })
	return &keyIterator{Iterator: types.NewRefValList(valueAdapter{}, keys).Iterator()}
}

// keyIterator is a list's iterator in the place of a map's.
type keyIterator struct{ traits.Iterator }

// keyLess orders keys: bool, then numbers, then text, each among themselves by value.
func keyLess(a, b ref.Val) bool {
	if ra, rb := keyRank(a), keyRank(b); ra != rb {
		return ra < rb
	}
	c, ok := a.(traits.Comparer)
	return ok && c.Compare(b) == types.IntNegOne
}

func keyRank(v ref.Val) int {
	switch v.(type) {
	case types.Bool:
		return 0
	case types.Int, types.Uint, types.Double:
		return 1
	case types.String:
		return 2
	}
	return 3
}

// valueAdapter turns plain values into CEL's, with ordered maps at every depth.
type valueAdapter struct{}

// NativeToValue implements types.Adapter.
func (a valueAdapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case string:
		return types.String(v)
	case map[string]any:
		return orderedMap{types.NewStringInterfaceMap(a, v)}
	case map[string]string:
		return orderedMap{types.NewStringStringMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	case []string:
		return types.NewStringList(a, v)
	case []ref.Val:
		return types.NewRefValList(a, v)
	case map[ref.Val]ref.Val:
		return orderedMap{types.NewRefValMap(a, v)}
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// orderMapLiterals makes maps that an expression writes down ordered as well.
func orderMapLiterals(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	c, ok := i.(interpreter.InterpretableConstructor)
	if !ok || c.Type() != types.MapType {
		return i, nil
	}
	return &orderedLiteral{c}, nil
}

type orderedLiteral struct {
	interpreter.InterpretableConstructor
}

// Exec implements interpreter.InterpretableV2.
func (l *orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return ordered(l.InterpretableConstructor.Exec(frame))
}

// Eval implements interpreter.Interpretable.
func (l *orderedLiteral) Eval(vars interpreter.Activation) ref.Val {
	return ordered(l.InterpretableConstructor.Eval(vars))
}

func ordered(v ref.Val) ref.Val {
	if m, ok := v.(traits.Mapper); ok {
		return orderedMap{m}
	}
	return v
}
