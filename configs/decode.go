package configs

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// later holds keys that the design knows and this version does not, so that a person who read ahead is told so.
var later = map[string]bool{
	"agents": true, "agent": true, "mcp": true, "workflow": true, "call": true, "coalesce": true, "dedupe": true, "rate": true,
	"start": true, "start_within": true, "wait_for": true, "arguments": true, "replay_guard": true, "on_dead": true,
	"public_url": true, "credential": true, "queue": true, "process": true,
}

// decoder fills Go values from nodes, strictly.
type decoder struct{ problems *problems }

var (
	durationType = reflect.TypeFor[Duration]()
	sizeType     = reflect.TypeFor[Size]()
)

func (d *decoder) report(n *node, at path, msg, hint string) {
	d.problems.add(Problem{File: n.doc.file, Line: n.line, Column: n.column, Path: at.String(), Msg: msg, Hint: hint})
	n.opaque = true
}

// value decodes n into v. A problem leaves v as it is and n opaque.
func (d *decoder) value(n *node, v reflect.Value, at path) {
	if n.opaque || n.kind == removedNode {
		return
	}
	if n.kind == nullNode {
		if len(at) == 1 { // a section whose entries are all commented out
			return
		}
		d.report(n, at, "needs a value, this is empty", nullHint(n, v.Type(), at))
		return
	}
	switch v.Type() {
	case durationType, sizeType:
		d.unit(n, v, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		d.value(n, fresh.Elem(), at)
		if !n.opaque {
			v.Set(fresh)
		}
	case reflect.Struct:
		d.structure(n, v, at)
	case reflect.Map:
		d.mapping(n, v, at)
	case reflect.Slice:
		d.list(n, v, at)
	case reflect.String:
		if d.text(n, at) {
			v.SetString(n.text)
		}
	case reflect.Int:
		d.integer(n, v, at)
	case reflect.Bool:
		d.boolean(n, v, at)
	default:
		panic("configs: no decoding for " + v.Type().String())
	}
}

func nullHint(n *node, t reflect.Type, at path) string {
	switch {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return "write " + at[len(at)-1] + ": {} for the defaults"
	case n.text != "":
		return "quote it if it is text, or leave the key out"
	}
	return "give a value, or leave the key out"
}

func (d *decoder) structure(n *node, v reflect.Value, at path) {
	if short := shortKey(v.Type()); n.kind == scalarNode && short != "" {
		if !d.text(n, at) {
			return
		}
		inner := *n
		n.kind, n.entries = mappingNode, []entry{{key: short, line: n.line, column: n.column, value: &inner}}
	}
	if n.kind != mappingNode {
		d.report(n, at, "wants a mapping, this is "+n.describe(), "")
		return
	}
	t := v.Type()
	fields := map[string]reflect.Value{}
	for i := range t.NumField() {
		if k := yamlKey(t.Field(i)); k != "" {
			fields[k] = v.Field(i)
		}
	}
	for _, e := range n.entries {
		if f, ok := fields[e.key]; ok {
			d.value(e.value, f, at.key(e.key))
		} else {
			d.unknownKey(n, e, t, at)
		}
	}
}

// unknownKey reports e. Where it is a slip of a known key, that key counts as given, so that it is not reported as missing as well.
func (d *decoder) unknownKey(n *node, e entry, t reflect.Type, at path) {
	hint := didYouMean(e.key, keysOf(t))
	if later[e.key] {
		hint = "not available yet in this version"
	} else if meant := nearest(e.key, keysOf(t)); meant != "" && n.get(meant) == nil {
		n.set(entry{key: meant, line: e.line, column: e.column, value: &node{doc: e.value.doc, line: e.line, column: e.column, opaque: true}})
	}
	d.problems.add(Problem{File: e.value.doc.file, Line: e.line, Column: e.column, Path: at.key(e.key).String(), Msg: "unknown key", Hint: hint})
}

func (d *decoder) mapping(n *node, v reflect.Value, at path) {
	if n.kind != mappingNode {
		d.report(n, at, "wants a mapping, this is "+n.describe(), "")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.entries {
		if e.value.kind == removedNode {
			if named(at) {
				d.report(e.value, at.key(e.key), "there is nothing of this name to remove", didYouMean(e.key, present(n)))
			}
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, elem, at.key(e.key))
		v.SetMapIndex(reflect.ValueOf(e.key), elem)
	}
}

func present(n *node) []string {
	var keys []string
	for _, e := range n.entries {
		if e.value.kind != removedNode {
			keys = append(keys, e.key)
		}
	}
	return keys
}

func (d *decoder) list(n *node, v reflect.Value, at path) {
	items := n.items
	switch {
	case n.kind == scalarNode && v.Type() == reflect.TypeFor[StringList]():
		if !d.text(n, at) {
			return
		}
		v.Set(reflect.ValueOf(StringList{n.text}))
		return
	case n.kind != sequenceNode:
		d.report(n, at, "wants a list, this is "+n.describe(), "")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, out.Index(i), at.index(i))
	}
	v.Set(out)
}

// text checks that n is text.
func (d *decoder) text(n *node, at path) bool {
	switch {
	case n.kind != scalarNode:
		d.report(n, at, "wants text, this is "+n.describe(), "")
	case n.tag != "!!str":
		d.report(n, at, "wants text, this is "+n.describe(), "quote it: "+strconv.Quote(n.raw))
	default:
		return true
	}
	return false
}

// shown is a scalar as it may be quoted in a message: as it was written, without the value of a variable.
func (n *node) shown() string { return strconv.Quote(cut(n.raw, 60)) }

func (d *decoder) integer(n *node, v reflect.Value, at path) {
	// A variable's text is a string to YAML, although it may hold a number.
	number := n.kind == scalarNode && (n.tag == "!!int" || n.tag == "!!float")
	if !number && !(n.kind == scalarNode && n.expanded() && n.tag == "!!str") {
		d.report(n, at, "wants a whole number, this is "+n.describe(), "")
		return
	}
	i, err := strconv.ParseInt(n.text, 10, 0)
	switch {
	case errors.Is(err, strconv.ErrRange):
		d.report(n, at, "number is too large", "")
	case err != nil || len(n.text) > 1 && strings.HasPrefix(n.text, "0"):
		d.report(n, at, "wants a whole number, this is "+n.shown(), "write it in decimal digits")
	default:
		v.SetInt(i)
	}
}

func (d *decoder) boolean(n *node, v reflect.Value, at path) {
	var word string
	if n.kind == scalarNode && (n.tag == "!!bool" || n.expanded() && n.tag == "!!str") {
		word = strings.ToLower(n.text)
	}
	switch word {
	case "true":
		v.SetBool(true)
	case "false":
		v.SetBool(false)
	default:
		d.report(n, at, "wants true or false, this is "+n.describe(), "")
	}
}

func (d *decoder) unit(n *node, v reflect.Value, at path) {
	what := "a duration"
	if v.Type() == sizeType {
		what = "a size"
	}
	if n.kind != scalarNode || n.tag == "!!bool" {
		d.report(n, at, fmt.Sprintf("wants %s, this is %s", what, n.describe()), "")
		return
	}
	var err error
	if v.Type() == durationType {
		var span Duration
		span, err = ParseDuration(n.text)
		v.SetInt(int64(span))
	} else {
		var size Size
		size, err = ParseSize(n.text)
		v.SetInt(int64(size))
	}
	if err != nil {
		msg := err.Error()
		if n.expanded() {
			msg = "wants " + what + ", " + n.shown() + " does not expand to one"
		}
		d.report(n, at, msg, "")
	}
}

// source is the file's text from where n starts to the end of the line.
func (n *node) source() string {
	if n.line < 1 || n.line > len(n.doc.lines) {
		return ""
	}
	src := []rune(n.doc.lines[n.line-1])
	if n.column < 1 || n.column > len(src) {
		return ""
	}
	return string(src[n.column-1:])
}

// parseBound reads a min or max tag for a value of type t.
func parseBound(t reflect.Type, s string) int64 {
	switch t {
	case durationType:
		return int64(must(ParseDuration(s)))
	case sizeType:
		return int64(must(ParseSize(s)))
	}
	return must(strconv.ParseInt(s, 10, 64))
}

// must is for struct tags: a test reads all of them.
func must[T any](v T, err error) T {
	if err != nil {
		panic("configs: struct tag: " + err.Error())
	}
	return v
}

// showBound prints a bound as a file would say it.
func showBound(t reflect.Type, n int64) string {
	switch t {
	case durationType:
		return Duration(time.Duration(n)).String()
	case sizeType:
		return Size(n).String()
	}
	return strconv.FormatInt(n, 10)
}
