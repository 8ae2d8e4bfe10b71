package triggers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/triggerd/triggerd"
)

// Set is a compiled collection of triggers. It never changes and is safe for concurrent use.
type Set struct {
	byConnection map[string]*index
	byKey        map[string]*trigger
	byName       map[string]*trigger
}

// index finds the triggers of one connection that an event's type may concern. All lists are in name order.
type index struct {
	all   []*trigger
	exact map[string][]*trigger // by a whole type
	first map[string][]*trigger // by the first token, of globs whose first token is literal
	other []*trigger            // the rest: globs that begin with a wildcard, and no globs at all
}

// Compile checks and compiles definitions. All problems of all definitions are found; the error joins a [FieldError] for each (see [FieldErrors]).
func Compile(defs []Definition) (*Set, error) {
	c := newCompiler()
	s := &Set{byConnection: map[string]*index{}, byKey: map[string]*trigger{}, byName: map[string]*trigger{}}
	all := make([]*trigger, 0, len(defs))
	for _, d := range defs {
		t := c.compile(d)
		if other := s.byName[d.Name]; other != nil {
			c.fail(d, "name", errors.New("another trigger has this name"))
		}
		if other := s.byKey[d.Key]; other != nil {
			c.fail(d, "key", fmt.Errorf("trigger %q has the first name %q as well", other.def.Name, d.Key))
		}
		s.byName[d.Name], s.byKey[d.Key] = t, t
		all = append(all, t)
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	slices.SortFunc(all, func(a, b *trigger) int { return cmp.Compare(a.def.Name, b.def.Name) })
	for i, t := range all {
		t.order = i
		for _, conn := range t.def.Connections {
			s.index(conn).add(t)
		}
	}
	return s, nil
}

func (s *Set) index(connection string) *index {
	ix := s.byConnection[connection]
	if ix == nil {
		ix = &index{exact: map[string][]*trigger{}, first: map[string][]*trigger{}}
		s.byConnection[connection] = ix
	}
	return ix
}

// add appends a trigger; triggers come in name order, and one that names a connection or a glob twice is in each list once.
func (ix *index) add(t *trigger) {
	ix.all = appendOnce(ix.all, t)
	if len(t.def.Events) == 0 {
		ix.other = appendOnce(ix.other, t)
	}
	for _, glob := range t.def.Events {
		token, _, _ := strings.Cut(glob, ".")
		switch {
		case !strings.Contains(glob, "*"):
			ix.exact[glob] = appendOnce(ix.exact[glob], t)
		case !strings.Contains(token, "*"):
			ix.first[token] = appendOnce(ix.first[token], t)
		default:
			ix.other = appendOnce(ix.other, t)
		}
	}
}

func appendOnce(list []*trigger, t *trigger) []*trigger {
	if n := len(list); n > 0 && list[n-1] == t {
		return list
	}
	return append(list, t)
}

// Names are the present names of a connection's triggers, in order.
func (s *Set) Names(connection string) []string {
	ix := s.byConnection[connection]
	if ix == nil {
		return nil
	}
	names := make([]string, len(ix.all))
	for i, t := range ix.all {
		names[i] = t.def.Name
	}
	return names
}

// Decide gives a verdict for every trigger of the event's connection, in name order, each with its reason. It is pure: the same event
// and definitions give the same verdicts. On the connection "manual" it gives the target's alone, none where there is no such trigger.
func (s *Set) Decide(ev *triggerd.Event) []Verdict {
	occ := newOccurrence(ev)
	var out []Verdict
	for _, t := range s.concerned(ev) {
		out = append(out, t.decide(occ, true))
	}
	return out
}

// Matches gives the verdicts of [Set.Decide] whose kind is Matched or Errored, in the same order. It looks only at triggers
// that the event's connection and type may concern.
func (s *Set) Matches(ev *triggerd.Event) []Verdict {
	occ := newOccurrence(ev)
	var out []Verdict
	take := func(t *trigger) {
		if v := t.decide(occ, false); v.Kind == Matched || v.Kind == Errored {
			out = append(out, v)
		}
	}
	if ev.Connection == ManualConnection {
		for _, t := range s.concerned(ev) {
			take(t)
		}
		return out
	}
	if ix := s.byConnection[ev.Connection]; ix != nil {
		token, _, _ := strings.Cut(ev.Type, ".")
		merge([3][]*trigger{ix.exact[ev.Type], ix.first[token], ix.other}, take)
	}
	return out
}

// concerned are the triggers that owe the event a verdict.
func (s *Set) concerned(ev *triggerd.Event) []*trigger {
	if ev.Connection == ManualConnection {
		if t := s.target(ev.Target); t != nil {
			return []*trigger{t}
		}
		return nil
	}
	if ix := s.byConnection[ev.Connection]; ix != nil {
		return ix.all
	}
	return nil
}

// target finds a trigger by its key, which keeps its meaning over renames, or else by its present name.
func (s *Set) target(name string) *trigger {
	if t := s.byKey[name]; t != nil {
		return t
	}
	return s.byName[name]
}

// merge visits the triggers of lists that are in order, in order, each once.
func merge(lists [3][]*trigger, visit func(*trigger)) {
	for {
		var next *trigger
		for _, l := range lists {
			if len(l) > 0 && (next == nil || l[0].order < next.order) {
				next = l[0]
			}
		}
		if next == nil {
			return
		}
		for i, l := range lists {
			if len(l) > 0 && l[0] == next {
				lists[i] = l[1:]
			}
		}
		visit(next)
	}
}
