package expr

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// toPlain turns a CEL value into a plain Go value: nil, bool, int64, uint64, float64, string, []byte, time.Time (UTC), []any and
// map[string]any. A duration and a type become their text, an optional what it holds or nil. A map that is part of the payload
// is not copied, so the result is for reading.
func toPlain(v ref.Val) (any, error) {
	switch v := v.(type) {
	case nil, types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return uint64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("%v has no form outside of an expression", float64(v))
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Bytes:
		return []byte(v), nil
	case types.Timestamp:
		return v.Time.UTC(), nil
	case types.Duration:
		return string(v.ConvertToType(types.StringType).(types.String)), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil
		}
		return toPlain(v.GetValue())
	case *types.Type:
		return v.TypeName(), nil
	case *objectVal:
		return plainObject(v)
	case traits.Mapper:
		return plainMap(v)
	case traits.Lister:
		return plainList(v)
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a %s has no form outside of an expression", v.Type().TypeName())
}

func plainObject(o *objectVal) (any, error) {
	out := make(map[string]any, len(o.fields))
	for i := range o.fields {
		v := o.fields[i].get(o.vars)
		if m, ok := v.(map[string]string); ok {
			copied := make(map[string]any, len(m))
			for k, e := range m {
				copied[k] = e
			}
			v = copied
		}
		out[o.fields[i].name] = v
	}
	return out, nil
}

func plainMap(m traits.Mapper) (any, error) {
	if plain, ok := m.Value().(map[string]any); ok {
		return plain, nil
	}
	out := make(map[string]any, int(m.Size().(types.Int)))
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, err := mapName(k)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("a map has two keys that are both written %q", name)
		}
		if out[name], err = toPlain(m.Get(k)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mapName(k ref.Val) (string, error) {
	switch k := k.(type) {
	case types.String:
		return string(k), nil
	case types.Int:
		return strconv.FormatInt(int64(k), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(k), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(k)), nil
	}
	return "", fmt.Errorf("a map key is %s, need string, int, uint or bool", k.Type().TypeName())
}

func plainList(l traits.Lister) (any, error) {
	out := make([]any, 0, int(l.Size().(types.Int)))
	for it := l.Iterator(); it.HasNext() == types.True; {
		v, err := toPlain(it.Next())
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// textOf is a plain value in a text: nil is nothing, a string itself, bytes must be UTF-8, lists and maps are compact JSON.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		if !utf8.Valid(v) {
			return "", errors.New("bytes that are not valid UTF-8 cannot be part of a text; use base64.encode(...)")
		}
		return string(v), nil
	case time.Time:
		return v.Format(time.RFC3339Nano), nil
	}
	b, err := JSON(v)
	return string(b), err
}

// typeName is what CEL calls the type of a plain value.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "bool"
	case int64:
		return "int"
	case uint64:
		return "uint"
	case float64:
		return "double"
	case []byte:
		return "bytes"
	case []any:
		return "list"
	case map[string]any, map[string]string:
		return "map"
	case time.Time, types.Timestamp:
		return "timestamp"
	case *objectVal:
		return v.typ.TypeName()
	case ref.Val:
		return v.Type().TypeName()
	}
	return valueAdapter{}.NativeToValue(v).Type().TypeName()
}
