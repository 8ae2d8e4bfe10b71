package expr

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// object is a type with a fixed set of fields, so that a misspelt one is found at compile time.
type object struct {
	typ    *cel.Type
	fields []field
}

// field is one of them. get gives a plain value and is called each time, so it is cheap or remembers.
type field struct {
	name string
	typ  *cel.Type
	get  func(*Vars) any
	has  func(*Vars) bool // nil = always
}

func (o *object) field(name string) (*field, bool) {
	for i := range o.fields {
		if o.fields[i].name == name {
			return &o.fields[i], true
		}
	}
	return nil, false
}

func (o *object) names() []string {
	names := make([]string, len(o.fields))
	for i := range o.fields {
		names[i] = o.fields[i].name
	}
	return names
}

var stringMap = cel.MapType(cel.StringType, cel.StringType)

var eventObject = &object{typ: cel.ObjectType("triggerd.Event", traits.IndexerType, traits.FieldTesterType), fields: []field{
	{name: "payload", typ: cel.DynType, get: func(v *Vars) any { return v.event.payload() }, has: func(v *Vars) bool { return len(v.event.ev.Payload) > 0 }},
	{name: "type", typ: cel.StringType, get: func(v *Vars) any { return v.event.ev.Type }},
	{name: "headers", typ: stringMap, get: func(v *Vars) any { return headersOf(v.event.ev.Headers) }},
	{name: "id", typ: cel.StringType, get: func(v *Vars) any { return v.event.ev.ID }},
	{name: "connection", typ: cel.StringType, get: func(v *Vars) any { return v.event.connection }},
	{name: "time", typ: cel.TimestampType, get: func(v *Vars) any { return v.event.ev.Time.UTC() }},
	{name: "received", typ: cel.TimestampType, get: func(v *Vars) any { return v.event.ev.Received.UTC() }},
	{name: "cursor", typ: cel.NullableType(cel.StringType), get: func(v *Vars) any { return cursorOf(v.event.ev.Cursor) }, has: func(v *Vars) bool { return v.event.ev.Cursor != nil }},
	{name: "attempt", typ: cel.IntType, get: func(v *Vars) any { return max(1, int64(v.turn.Attempt)) }},
}}

var turnObject = &object{typ: cel.ObjectType("triggerd.Turn", traits.IndexerType, traits.FieldTesterType), fields: []field{
	{name: "key", typ: cel.StringType, get: func(v *Vars) any { return v.turn.Key }},
	{name: "trigger", typ: cel.StringType, get: func(v *Vars) any { return v.turn.Trigger }},
	{name: "connection", typ: cel.StringType, get: func(v *Vars) any { return v.turn.Connection }},
	{name: "attempt", typ: cel.IntType, get: func(v *Vars) any { return int64(v.turn.Attempt) }},
	{name: "thread", typ: cel.StringType, get: func(v *Vars) any { return v.turn.Thread }},
	{name: "idempotency_key", typ: cel.StringType, get: func(v *Vars) any { return v.turn.IdempotencyKey }},
	{name: "opened", typ: cel.TimestampType, get: func(v *Vars) any { return v.turn.Opened.UTC() }},
}}

var requestObject = &object{typ: cel.ObjectType("triggerd.Request", traits.IndexerType, traits.FieldTesterType), fields: []field{
	{name: "headers", typ: stringMap, get: func(v *Vars) any { return headersOf(v.request.data.Headers) }},
	{name: "query", typ: stringMap, get: func(v *Vars) any { return headersOf(v.request.data.Query) }},
	{name: "path", typ: cel.StringType, get: func(v *Vars) any { return v.request.data.Path }},
	{name: "method", typ: cel.StringType, get: func(v *Vars) any { return v.request.data.Method }},
	{name: "body", typ: cel.DynType, get: func(v *Vars) any { return v.request.body() }, has: func(v *Vars) bool { return len(v.request.data.Body) > 0 }},
}}

func objectNamed(name string) (*object, bool) {
	for _, o := range []*object{eventObject, turnObject, requestObject} {
		if o.typ.TypeName() == name {
			return o, true
		}
	}
	return nil, false
}

func headersOf(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// cursorOf is a position as expressions see it: null, the text that it is, or base64 where it is not text.
func cursorOf(c []byte) any {
	switch {
	case c == nil:
		return nil
	case utf8.Valid(c):
		return string(c)
	}
	return base64.StdEncoding.EncodeToString(c)
}

// objectVal is an object with the variables that its fields are read from.
type objectVal struct {
	*object
	vars *Vars
}

// ConvertToNative implements ref.Val; values leave through toNative instead.
func (o *objectVal) ConvertToNative(typ reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s has no form as %v", o.typ.TypeName(), typ)
}

// ConvertToType implements ref.Val.
func (o *objectVal) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return o.typ
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.typ.TypeName(), t.TypeName())
}

// Equal implements ref.Val. There is one value of each object in an evaluation.
func (o *objectVal) Equal(other ref.Val) ref.Val {
	p, ok := other.(*objectVal)
	return types.Bool(ok && p.object == o.object)
}

// Type implements ref.Val.
func (o *objectVal) Type() ref.Type { return o.typ }

// Value implements ref.Val. Field access in CEL starts from it.
func (o *objectVal) Value() any { return o }

// Get implements traits.Indexer, for dyn(event).field.
func (o *objectVal) Get(index ref.Val) ref.Val {
	if name, ok := index.(types.String); ok {
		if f, ok := o.field(string(name)); ok {
			return valueAdapter{}.NativeToValue(f.get(o.vars))
		}
	}
	return types.NewErr("no such key: %v", index)
}

// IsSet implements traits.FieldTester, for has(dyn(event).field).
func (o *objectVal) IsSet(name ref.Val) ref.Val {
	s, ok := name.(types.String)
	if !ok {
		return types.False
	}
	f, ok := o.field(string(s))
	return types.Bool(ok && (f.has == nil || f.has(o.vars)))
}

// provider answers the type checker about our objects and hands everything else on.
type provider struct {
	types.Provider
}

// FindIdent implements types.Provider, for type(event) == triggerd.Event.
func (p provider) FindIdent(name string) (ref.Val, bool) {
	if o, ok := objectNamed(name); ok {
		return o.typ, true
	}
	return p.Provider.FindIdent(name)
}

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if o, ok := objectNamed(name); ok {
		return types.NewTypeTypeWithParam(o.typ), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := objectNamed(name); ok {
		return o.names(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	o, ok := objectNamed(name)
	if !ok {
		return p.Provider.FindStructFieldType(name, fieldName)
	}
	f, ok := o.field(fieldName)
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type: f.typ,
		IsSet: func(target any) bool {
			v, ok := target.(*objectVal)
			return ok && (f.has == nil || f.has(v.vars))
		},
		GetFrom: func(target any) (any, error) {
			v, ok := target.(*objectVal)
			if !ok {
				return nil, fmt.Errorf("no such key: %s", fieldName)
			}
			return f.get(v.vars), nil
		},
	}, true
}

// NewValue implements types.Provider: our objects are given, never made.
func (p provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := objectNamed(name); ok {
		return types.NewErr("a %s cannot be made in an expression", name)
	}
	return p.Provider.NewValue(name, fields)
}
