package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration. It never holds the value of a variable or a secret.
type Problem struct {
	File         string // as it was named to Load
	Line, Column int    // from 1; 0 where the problem has no place in a file
	Path         string // for example triggers.nightly.run.exec.command[0]; "" for a whole file
	Msg          string // what is wrong
	Hint         string // what to do about it; may be empty
}

// String is "file:line:column: path: message (hint)", without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Msg)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Errors is what [Load] and [Parse] return: every problem that was found, in the order of the files.
type Errors struct{ Problems []Problem }

// Error has one problem a line.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// problems collects, and drops repeats: an anchor that is used five times is wrong once.
type problems struct {
	list []Problem
	seen map[Problem]bool
}

func (ps *problems) add(p Problem) {
	key := p
	if p.Line > 0 {
		key.Path = ""
	}
	if ps.seen[key] {
		return
	}
	if ps.seen == nil {
		ps.seen = map[Problem]bool{}
	}
	ps.seen[key] = true
	ps.list = append(ps.list, p)
}

// err is nil when there are no problems.
func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Errors{Problems: ps.list}
}
