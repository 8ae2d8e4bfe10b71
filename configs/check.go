package configs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/cron"
)

// checker fills in defaults and looks for what types cannot say. All checks run, whatever the others find.
type checker struct {
	cfg      *Config
	root     *node
	o        Options
	problems *problems
}

func (c *checker) run() {
	c.defaults()
	for _, check := range []func(){
		c.tags, c.dependent, c.server, c.nats, c.history, c.secrets, c.connections, c.triggers, c.pools, c.renames,
	} {
		check()
	}
}

// report blames the value at p, or the nearest thing around it that is in a file. Nothing is said about a value that is not known.
func (c *checker) report(p path, msg, hint string) {
	n, _ := c.root.at(p)
	c.reportAt(n, n.line, n.column, p, msg, hint)
}

func (c *checker) reportAt(n *node, line, column int, p path, msg, hint string) {
	if n.opaque {
		return
	}
	c.problems.add(Problem{File: n.doc.file, Line: line, Column: column, Path: p.String(), Msg: msg, Hint: hint})
}

// reportKey blames the key of the value at p rather than the value.
func (c *checker) reportKey(p path, msg, hint string) {
	parent, _ := c.root.at(p[:len(p)-1])
	for _, e := range parent.entries {
		if e.key == p[len(p)-1] {
			c.reportAt(e.value, e.line, e.column, p, msg, hint)
			return
		}
	}
	c.report(p, msg, hint)
}

// given reports whether the files have a value at p.
func (c *checker) given(p path) bool {
	_, ok := c.root.at(p)
	return ok
}

// known reports whether there is a value at p that checks may look at.
func (c *checker) known(p path) bool {
	n, ok := c.root.at(p)
	return ok && !n.opaque
}

// tags runs the checks that struct tags ask for. It makes paths absolute on the way.
func (c *checker) tags() {
	walk(reflect.ValueOf(c.cfg).Elem(), nil, func(f field) {
		c.required(f)
		if !c.known(f.path) {
			return
		}
		c.notEmpty(f)
		c.words(f)
		c.bounds(f)
		c.format(f)
		c.expressions(f) // before resolve, which changes texts and so their columns
		c.resolve(f)
	})
}

func (c *checker) required(f field) {
	around := f.path[:len(f.path)-1]
	if f.tag.Get("required") == "" || c.given(f.path) || !c.given(around) {
		return
	}
	c.report(around, "needs "+f.path[len(f.path)-1], "")
}

// notEmpty refuses empty text wherever it is not a template's, and lists that hold nothing: neither can be told from a slip.
func (c *checker) notEmpty(f field) {
	if f.v.Kind() == reflect.String && strings.TrimSpace(f.v.String()) == "" {
		if f.tag.Get("expr") != "" {
			c.report(f.path, "expression is empty", "leave the key out, or quote what YAML took for a comment or a tag")
		} else {
			c.report(f.path, "is empty", "leave the key out for the default")
		}
	}
	if f.v.Kind() == reflect.Slice && f.tag.Get("size") != "" {
		if f.v.Len() == 0 {
			c.report(f.path, "list is empty", "leave the key out for the default")
		}
		f.texts(func(s string, at path, _ func(string)) {
			if strings.TrimSpace(s) == "" && f.tag.Get("template") == "" {
				c.report(at, "is empty", "")
			}
		})
	}
}

func (c *checker) words(f field) {
	known := f.words("enum")
	if known == nil || slices.Contains(known, f.v.String()) || f.v.String() == "" {
		return
	}
	n, _ := c.root.at(f.path)
	if slices.Contains(f.words("later"), f.v.String()) {
		c.report(f.path, n.shown()+" is not available yet in this version", laterHint(f.v.String(), known))
		return
	}
	c.report(f.path, n.shown()+" is not one of "+strings.Join(known, ", "), wordHint(f.v.String(), known))
}

func wordHint(word string, known []string) string {
	if n := nearest(word, known); n != "" {
		return "did you mean " + n + "?"
	}
	return ""
}

func laterHint(word string, known []string) string {
	if word == "resume" {
		return "it is for agents; use retry or park"
	}
	return "use " + strings.Join(known, ", ")
}

func (c *checker) bounds(f field) {
	v := f.v
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Int {
		for i := range v.Len() {
			c.bound(v.Index(i), f, f.path.index(i))
		}
		return
	}
	c.bound(v, f, f.path)
}

func (c *checker) bound(v reflect.Value, f field, at path) {
	if !v.CanInt() {
		return
	}
	if lo := f.tag.Get("min"); lo != "" && v.Int() < parseBound(v.Type(), lo) {
		c.report(at, fmt.Sprintf("%s is too small: at least %s", showBound(v.Type(), v.Int()), lo), "")
	}
	if hi := f.tag.Get("max"); hi != "" && v.Int() > parseBound(v.Type(), hi) {
		c.report(at, fmt.Sprintf("%s is too large: at most %s", showBound(v.Type(), v.Int()), hi), "")
	}
}

func (c *checker) format(f field) {
	if f.tag.Get("format") == "labels" {
		c.labels(f.path, f.v.Interface().(map[string]string))
		return
	}
	s := f.v.String()
	if s == "" {
		return
	}
	switch f.tag.Get("format") {
	case "name":
		if err := triggerd.ValidName(s); err != nil {
			c.report(f.path, err.Error(), "")
		}
	case "timezone":
		if _, err := cron.Zone(s); err != nil {
			c.report(f.path, err.Error(), "use a name of the IANA zone database, for example Europe/Berlin")
		}
	}
}

// resolve makes relative paths absolute.
func (c *checker) resolve(f field) {
	kind := f.tag.Get("path")
	if kind == "" {
		return
	}
	f.texts(func(s string, at path, set func(string)) {
		if strings.TrimSpace(s) == "" {
			return
		}
		n, _ := c.root.at(at)
		switch {
		case n.opaque:
		case kind == "glob":
			set(n.relGlob(s))
		case f.tag.Get("template") != "":
			set(n.relTemplate(s))
		default:
			set(n.rel(s))
		}
	})
}

// names checks the names of a section.
func (c *checker) names(at path, names []string) {
	for _, name := range names {
		if err := triggerd.ValidName(name); err != nil {
			c.reportKey(at.key(name), err.Error(), "")
		}
	}
}

// exactlyOne reports when not exactly one of the keys is given below at. It returns the one, or "".
func (c *checker) exactlyOne(at path, keys []string, what string) string {
	var got []string
	for _, k := range keys {
		if c.given(at.key(k)) {
			got = append(got, k)
		}
	}
	switch len(got) {
	case 1:
		return got[0]
	case 0:
		c.report(at, "needs "+what, "one of "+strings.Join(keys, ", "))
	default:
		c.reportKey(at.key(got[1]), "only one of "+strings.Join(got, ", ")+" can be set", "")
	}
	return ""
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// renames checks that a name is taken over from something that is gone, and once only.
func (c *checker) renames() {
	from := map[string]string{}
	for _, name := range sortedNames(c.cfg.Connections) {
		p := path{"connections", name, "renamed_from"}
		c.rename(p, name, c.cfg.Connections[name].RenamedFrom, from, func(old string) bool { _, ok := c.cfg.Connections[old]; return ok })
	}
	from = map[string]string{}
	for _, name := range sortedNames(c.cfg.Triggers) {
		p := path{"triggers", name, "renamed_from"}
		c.rename(p, name, c.cfg.Triggers[name].RenamedFrom, from, func(old string) bool { _, ok := c.cfg.Triggers[old]; return ok })
	}
}

func (c *checker) rename(p path, name, old string, from map[string]string, exists func(string) bool) {
	switch {
	case old == "" || !c.given(p):
	case old == name:
		c.report(p, "is the present name", "name the one before it")
	case exists(old):
		c.report(p, strconv.Quote(old)+" still exists", "remove it, or leave renamed_from out")
	case from[old] != "":
		c.report(p, strconv.Quote(old)+" was taken over by "+strconv.Quote(from[old])+" already", "")
	default:
		from[old] = name
	}
}
