package configs

import "fmt"

// union adds src to dst. Sections are joined key by key; a value, a list, or a name that both have is a clash, because no order between the files is meant.
func union(dst, src *node, at path, ps *problems) {
	for _, e := range src.entries {
		here := at.key(e.key)
		have := dst.get(e.key)
		switch {
		case have == nil:
			dst.entries = append(dst.entries, e)
		case len(at) == 0 && have.kind == nullNode: // an empty section
			dst.set(e)
		case len(at) == 0 && e.value.kind == nullNode:
		case have.kind == mappingNode && e.value.kind == mappingNode && !named(at):
			union(have, e.value, here, ps)
		default:
			ps.add(Problem{File: e.value.doc.file, Line: e.line, Column: e.column, Path: here.String(),
				Msg:  fmt.Sprintf("set twice, also at %s:%d:%d", have.doc.file, have.line, have.column),
				Hint: "files are joined as equals; an --overlay may replace"})
		}
	}
}

// overlay lays src over dst: mappings are merged, everything else replaces, null removes.
func overlay(dst, src *node) {
	for _, e := range src.entries {
		have := dst.get(e.key)
		switch {
		case e.value.kind == nullNode && have != nil:
			dst.remove(e.key)
		case e.value.kind == nullNode:
			gone := *e.value
			gone.kind = removedNode
			e.value = &gone
			dst.set(e)
		case e.value.kind == mappingNode:
			if have == nil || have.kind != mappingNode {
				fresh := *e.value
				fresh.entries = nil
				have = &fresh
				dst.set(entry{key: e.key, line: e.line, column: e.column, value: have})
			}
			overlay(have, e.value)
		default:
			dst.set(e)
		}
	}
}

// named reports whether the keys at this path are names that users give.
func named(at path) bool { return len(at) == 1 && isNamed(at[0]) }
