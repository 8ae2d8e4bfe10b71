package configs

import (
	"reflect"
	"slices"
	"strings"
)

// field is one place that a configuration can hold a value, as its struct tags describe it.
type field struct {
	v    reflect.Value // settable
	tag  reflect.StructTag
	path path
}

func (f field) words(tag string) []string {
	s := f.tag.Get(tag)
	if s == "" {
		return nil
	}
	return strings.Split(s, "|")
}

// yamlKey is the key of a struct field, or "" where it has none.
func yamlKey(f reflect.StructField) string {
	if !f.IsExported() {
		return ""
	}
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}

// shortKey is the key that a plain string stands for in a struct of this type, or "".
func shortKey(t reflect.Type) string {
	f, ok := t.FieldByName("_")
	if !ok {
		return ""
	}
	return f.Tag.Get("short")
}

// keysOf lists the keys of a struct type.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if k := yamlKey(t.Field(i)); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// kindsOf lists the keys of a struct type of which exactly one is to be set.
func kindsOf(t reflect.Type, kind string) []string {
	var keys []string
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("kind") == kind {
			keys = append(keys, yamlKey(t.Field(i)))
		}
	}
	return keys
}

// isNamed reports whether a top-level section is a map by name.
func isNamed(section string) bool {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		if yamlKey(t.Field(i)) == section {
			return t.Field(i).Type.Kind() == reflect.Map
		}
	}
	return false
}

// walk calls visit for every field of the struct v and of the structs in it, outer ones first, maps in the order of their keys.
// Pointers that are nil are visited and not entered.
func walk(v reflect.Value, at path, visit func(field)) {
	t := v.Type()
	for i := range t.NumField() {
		key := yamlKey(t.Field(i))
		if key == "" {
			continue
		}
		f := field{v: v.Field(i), tag: t.Field(i).Tag, path: at.key(key)}
		visit(f)
		walkInto(f.v, f.path, visit)
	}
}

func walkInto(v reflect.Value, at path, visit func(field)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkInto(v.Elem(), at, visit)
		}
	case reflect.Struct:
		walk(v, at, visit)
	case reflect.Slice:
		for i := range v.Len() {
			walkInto(v.Index(i), at.index(i), visit)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for _, k := range sortedKeys(v) { // map elements cannot be set in place
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(k))
			walk(elem, at.key(k.String()), visit)
			v.SetMapIndex(k, elem)
		}
	}
}

func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// texts calls fn for every text that a field holds: itself, what it points to, its elements. set replaces it.
func (f field) texts(fn func(s string, at path, set func(string))) {
	v := f.v
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		fn(v.String(), f.path, func(s string) { v.SetString(s) })
	case reflect.Slice:
		for i := range v.Len() {
			if e := v.Index(i); e.Kind() == reflect.String {
				fn(e.String(), f.path.index(i), func(s string) { e.SetString(s) })
			}
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.String {
			return
		}
		for _, k := range sortedKeys(v) {
			fn(v.MapIndex(k).String(), f.path.key(k.String()), func(s string) {
				v.SetMapIndex(k, reflect.ValueOf(s))
			})
		}
	}
}
