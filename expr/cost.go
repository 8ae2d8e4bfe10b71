package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// CEL's own charges leave two ways to hang. They count the length of lists and maps, not what is in them, so that a comparison of two
// deep payloads costs as much as one of two short lists. And a function whose overload depends on the payload, such as
// `x in event.payload.list`, costs one unit whatever it does. Here both are charged for what they walk over.

// costs limits an evaluation and replaces the charges that are too low.
func costs() []cel.ProgramOption {
	return []cel.ProgramOption{cel.CostLimit(CostLimit), cel.CostTracking(dynCosts{}), deepCosts()}
}

// dynCosts charges calls whose overload is found at run time.
type dynCosts struct{}

// CallCost implements cost.ActualCostEstimator; nil leaves the charge to CEL.
func (dynCosts) CallCost(function, overloadID string, args []ref.Val, _ ref.Val) *uint64 {
	switch function {
	case operators.In:
		return memberCost(args)
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return textCompareCost(args)
	}
	if overloadID != "" && !readsText(function) {
		return nil
	}
	total := uint64(1)
	for _, a := range args {
		total += textLength(a) / unit
		switch function {
		case operators.Add, operators.Index, operators.OptIndex, operators.OptSelect, overloads.Size, overloads.TypeConvertDyn, overloads.TypeConvertType:
			continue // these do not walk lists and maps
		}
		if aggregate(a) {
			total += length(a)
		}
	}
	if strings.Contains(function, "sort") {
		total *= 20 // the logarithm of a million
	}
	return units(total)
}

// readsText names the functions that CEL takes for free of their argument's length, although they read all of it.
func readsText(function string) bool {
	switch function {
	case overloads.Size, overloads.TypeConvertString, overloads.TypeConvertBytes, overloads.TypeConvertBool, overloads.TypeConvertInt,
		overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		return true
	}
	return false
}

func textLength(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

// deepCosts replace the charges of functions that walk whole values.
func deepCosts() cel.ProgramOption {
	var opts []cost.TrackerOption
	for id, fn := range map[string]cost.FunctionTracker{
		"equals":                    compareCost,
		"not_equals":                compareCost,
		"list_distinct":             distinctCost,
		"list_sets_contains_list":   productCost,
		"list_sets_equivalent_list": productCost,
		"list_sets_intersects_list": productCost,
		"list_hasOnly_list":         productCost,
		"list_hasAny_list":          productCost,
		"list_hasAll_list":          productCost,
		"list_hasExactly_list":      productCost,
		jsonEncodeID:                walkCost,
		jsonParseID:                 walkCost,
		"string_format":             walkCost,
		"list_join":                 walkCost,
		"list_join_string":          walkCost,
	} {
		opts = append(opts, cost.OverloadTracker(id, fn))
	}
	return cel.CostTrackerOptions(opts...)
}

// compareCost is that of the smaller of two lists or maps, and takes no longer than that to find.
func compareCost(args []ref.Val, _ ref.Val) *uint64 {
	if len(args) != 2 || !aggregate(args[0]) || !aggregate(args[1]) {
		return nil // decided by dynCosts
	}
	for limit := uint64(16 * unit); ; limit *= 4 {
		least := min(weigh(args[0], limit), weigh(args[1], limit))
		if least <= limit || limit > CostLimit*unit {
			return units(1 + least/unit)
		}
	}
}

// textCompareCost is that of the shorter text. CEL's own charge counts the characters of both first,
// which takes longer than to compare a long text with a short one.
func textCompareCost(args []ref.Val) *uint64 {
	if len(args) != 2 {
		return nil
	}
	return units(1 + min(textLength(args[0]), textLength(args[1]))/unit)
}

// memberCost is that of `args[0] in args[1]`: one look for a map, a comparison with each entry of a list.
func memberCost(args []ref.Val) *uint64 {
	if len(args) != 2 {
		return nil
	}
	if _, list := args[1].(traits.Lister); !list {
		return units(1 + textLength(args[0])/unit)
	}
	if aggregate(args[0]) {
		return units(length(args[1]) + weigh(args[1], CostLimit*unit)/unit)
	}
	return units(length(args[1]) * (1 + textLength(args[0])/unit))
}

func distinctCost(args []ref.Val, _ ref.Val) *uint64 {
	if len(args) != 1 {
		return nil
	}
	return units(1 + length(args[0])*(1+weigh(args[0], CostLimit*unit)/unit))
}

func productCost(args []ref.Val, _ ref.Val) *uint64 {
	if len(args) != 2 {
		return nil
	}
	a, b := 1+weigh(args[0], CostLimit*unit)/unit, 1+weigh(args[1], CostLimit*unit)/unit
	return units(1 + a*length(args[1]) + b*length(args[0]))
}

func walkCost(args []ref.Val, result ref.Val) *uint64 {
	total := 1 + weigh(result, CostLimit*unit)/unit
	for _, a := range args {
		total += weigh(a, CostLimit*unit) / unit
	}
	return units(total)
}

func units(n uint64) *uint64 { return &n }

func aggregate(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	}
	return false
}

func length(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return 1 + uint64(n)
		}
	}
	return 1
}

// unit is how much weight makes one cost unit: ten bytes of text, as in CEL, or one value.
const unit = 10

// weigh is the number of bytes of text in v plus ten for each value, or some number over limit: it stops there.
func weigh(v any, limit uint64) uint64 {
	w := weight{left: limit}
	w.add(v)
	return limit - w.left + w.over
}

type weight struct {
	left, over uint64
}

func (w *weight) spend(n uint64) bool {
	if n > w.left {
		w.left, w.over = 0, n
		return false
	}
	w.left -= n
	return true
}

func (w *weight) add(v any) bool {
	switch v := v.(type) {
	case string:
		return w.spend(unit + uint64(len(v)))
	case types.String:
		return w.spend(unit + uint64(len(v)))
	case []byte:
		return w.spend(unit + uint64(len(v)))
	case types.Bytes:
		return w.spend(unit + uint64(len(v)))
	case map[string]any:
		for k, e := range v {
			if !w.spend(uint64(len(k))) || !w.add(e) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !w.add(e) {
				return false
			}
		}
	case *types.Optional:
		return w.spend(unit) && (!v.HasValue() || w.add(v.GetValue()))
	case traits.Mapper:
		return w.addMap(v)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.add(it.Next()) {
				return false
			}
		}
	}
	return w.spend(unit)
}

func (w *weight) addMap(m traits.Mapper) bool {
	if plain, ok := m.Value().(map[string]any); ok {
		return w.add(plain)
	}
	if o, ok := m.(orderedMap); ok {
		m = o.Mapper // the order does not matter here
	}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		if !w.add(k) || !w.add(m.Get(k)) {
			return false
		}
	}
	return w.spend(unit)
}
