package configs

import (
	"path/filepath"
	"strconv"
	"strings"
)

type kind uint8

const (
	scalarNode kind = iota
	mappingNode
	sequenceNode
	nullNode
	removedNode // an overlay's null for a key that the files below it do not have
)

// document is one file.
type document struct {
	file  string   // as it was named
	dir   string   // absolute: what relative paths in it are relative to
	lines []string // the source, for positions inside block scalars and for hints
}

// node is a value of a configuration file, with its place. Aliases are expanded, so every node stands in the tree once.
type node struct {
	kind         kind
	doc          *document
	line, column int

	text  string // a scalar's value after `${VAR}`
	raw   string // the same as it was written
	tag   string // !!str, !!int, !!bool, !!float: what YAML makes of it
	plain bool   // neither quoted nor a block scalar
	block bool   // a block scalar: the text starts on the next line

	// opaque: the value is not known (a problem was reported, or a variable is unset and that is allowed). Nothing more is said about it.
	opaque bool

	entries []entry // of a mapping, in the file's order
	items   []*node // of a sequence
}

type entry struct {
	key          string
	line, column int
	value        *node
}

// expanded reports whether a variable is part of the text.
func (n *node) expanded() bool { return n.text != n.raw }

func (n *node) get(key string) *node {
	for i := range n.entries {
		if n.entries[i].key == key {
			return n.entries[i].value
		}
	}
	return nil
}

func (n *node) set(e entry) {
	for i := range n.entries {
		if n.entries[i].key == e.key {
			n.entries[i] = e
			return
		}
	}
	n.entries = append(n.entries, e)
}

func (n *node) remove(key string) {
	for i := range n.entries {
		if n.entries[i].key == key {
			n.entries = append(n.entries[:i:i], n.entries[i+1:]...)
			return
		}
	}
}

// at follows p as far as the tree goes. found says whether it went all the way; the node is the last one on the way.
func (n *node) at(p path) (last *node, found bool) {
	for _, step := range p {
		var next *node
		switch n.kind {
		case mappingNode:
			next = n.get(step)
		case sequenceNode:
			i, err := strconv.Atoi(strings.Trim(step, "[]"))
			if err == nil && i >= 0 && i < len(n.items) {
				next = n.items[i]
			}
		}
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, n.kind != removedNode
}

// position is where offset bytes (or line, for a block) into a scalar's text are in the file. Best effort: escapes and folding shift columns.
func (n *node) position(offset, line, column int) (int, int) {
	switch {
	case n.kind != scalarNode || n.expanded():
		return n.line, n.column
	case n.block:
		at := n.line + max(line, 1)
		if at > len(n.doc.lines) {
			return n.line, n.column
		}
		src := n.doc.lines[n.line]
		indent := len(src) - len(strings.TrimLeft(src, " "))
		return at, indent + max(column, 1)
	case line > 1 || offset < 0 || offset > len(n.text):
		return n.line, n.column
	}
	quote := 1
	if n.plain {
		quote = 0
	}
	return n.line, n.column + quote + len([]rune(n.text[:offset]))
}

// rel makes a path absolute against the file that names it.
func (n *node) rel(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(n.doc.dir, p)
}

// describe says what a node is, for messages about wrong types.
func (n *node) describe() string {
	switch n.kind {
	case mappingNode:
		return "a mapping"
	case sequenceNode:
		return "a list"
	case nullNode, removedNode:
		return "nothing"
	}
	switch n.tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "text"
}
