package configs

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// root converts a document. Keys that start with "x-" are dropped unseen: they are a home for anchors.
func (p *parser) root(y *yaml.Node) *node {
	if y == nil || len(y.Content) == 0 {
		return nil
	}
	top := y.Content[0]
	if top.Kind == yaml.ScalarNode && top.ShortTag() == "!!null" && top.Style&yaml.TaggedStyle == 0 {
		return nil
	}
	if top.Kind == yaml.MappingNode {
		kept := *top
		kept.Content = nil
		for i := 0; i+1 < len(top.Content); i += 2 {
			if !strings.HasPrefix(top.Content[i].Value, "x-") {
				kept.Content = append(kept.Content, top.Content[i], top.Content[i+1])
			}
		}
		top = &kept
	}
	n := p.convert(top, nil)
	if n.kind != mappingNode {
		if !n.opaque {
			p.report(n.line, n.column, nil, "a configuration is a mapping, this is "+n.describe(), "")
		}
		return nil
	}
	for i := range n.entries {
		if e := &n.entries[i]; isNamed(e.key) && e.value.kind == sequenceNode {
			e.value = p.byName(e.value, path{e.key})
		}
	}
	return n
}

// convert copies a value with its aliases expanded, and reports what no configuration may hold: tags, odd keys, runaway aliases.
func (p *parser) convert(y *yaml.Node, at path) *node {
	n := &node{doc: p.doc, line: y.Line, column: y.Column}
	if p.nodes++; p.nodes > maxNodes || len(at) > maxDepth {
		if !p.full {
			p.full = true
			p.report(y.Line, y.Column, at[:min(len(at), 8)], "too large or too deep once its aliases are expanded", "")
		}
		n.opaque = true
		return n
	}
	if y.Kind == yaml.AliasNode {
		return p.alias(y, n, at)
	}
	if y.Style&yaml.TaggedStyle != 0 {
		p.report(y.Line, y.Column, at, "YAML tag "+cut(y.Tag, 40)+" is not allowed", quoteHint(n))
		n.opaque = true
		return n
	}
	if y.Anchor != "" {
		p.open[y] = true
		defer delete(p.open, y)
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = mappingNode
		p.mapping(y, n, at)
	case yaml.SequenceNode:
		n.kind = sequenceNode
		for i, item := range y.Content {
			n.items = append(n.items, p.convert(item, at.index(i)))
		}
	default:
		p.scalar(y, n, at)
	}
	return n
}

func (p *parser) alias(y *yaml.Node, n *node, at path) *node {
	if y.Alias == nil || p.open[y.Alias] {
		p.report(y.Line, y.Column, at, "alias *"+cut(y.Value, 40)+" contains itself", "")
		n.opaque = true
		return n
	}
	return p.convert(y.Alias, at)
}

// quoteHint shows the rest of the line as the quoted text that it was probably meant to be.
func quoteHint(n *node) string {
	src := strings.TrimSpace(n.source())
	if src == "" {
		return "quote it"
	}
	return "quote it: '" + strings.ReplaceAll(cut(src, 120), "'", "''") + "'"
}

func (p *parser) mapping(y *yaml.Node, n *node, at path) {
	var merges []*yaml.Node
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!null" {
			p.report(y.Content[i].Line, y.Content[i].Column, at, "a key must be text", p.braceHint(k))
			n.opaque = n.opaque || k.Kind == yaml.MappingNode
			continue
		}
		if k.ShortTag() == "!!merge" {
			merges = append(merges, v)
			continue
		}
		if was := first[k.Value]; was != nil {
			p.report(k.Line, k.Column, at.key(k.Value), fmt.Sprintf("duplicate key, first at line %d", was.Line), "")
			continue
		}
		first[k.Value] = k
		n.entries = append(n.entries, entry{key: k.Value, line: k.Line, column: k.Column, value: p.convert(v, at.key(k.Value))})
	}
	for _, m := range merges {
		p.merge(m, n, at)
	}
}

// braceHint tells {{ x }} without quotes, which YAML reads as a mapping whose key is a mapping.
func (p *parser) braceHint(k *yaml.Node) string {
	if k.Kind == yaml.MappingNode {
		return "quote a text that starts with {{; expressions are ${{ ... }}"
	}
	return ""
}

// merge adds the entries of `<<: *anchor` that the mapping does not have itself.
func (p *parser) merge(y *yaml.Node, n *node, at path) {
	src := p.convert(y, at)
	from := []*node{src}
	if src.kind == sequenceNode {
		from = src.items
	}
	for _, f := range from {
		if f.kind != mappingNode {
			if !f.opaque {
				p.report(y.Line, y.Column, at, "<< wants a mapping or a list of mappings, this is "+f.describe(), "")
			}
			continue
		}
		for _, e := range f.entries {
			if n.get(e.key) == nil {
				n.entries = append(n.entries, e)
			}
		}
	}
}

func (p *parser) scalar(y *yaml.Node, n *node, at path) {
	n.text, n.raw, n.tag = y.Value, y.Value, y.ShortTag()
	n.block = y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
	n.plain = y.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
	if p.located(y.Line, at) {
		n.opaque = true
		return
	}
	switch n.tag {
	case "!!null":
		n.kind = nullNode
		return
	case "!!timestamp", "!!merge": // dates are text here
		n.tag = "!!str"
	}
	text, err := interpolate(y.Value, p.env)
	if err == nil {
		n.text = text
		return
	}
	n.opaque = true
	var unset errUnset
	if !errors.As(err, &unset) {
		p.report(y.Line, y.Column, at, err.Error(), "write $$ for a dollar sign")
	} else if !p.unset {
		p.report(y.Line, y.Column, at, err.Error(), "set it, or give a default: ${"+unset.name+":-...}")
	}
}

// byName turns a list of entries with `name` or `id` into the mapping that it stands for.
func (p *parser) byName(list *node, at path) *node {
	out := &node{kind: mappingNode, doc: list.doc, line: list.line, column: list.column}
	for i, item := range list.items {
		here := at.index(i)
		if item.kind != mappingNode {
			if !item.opaque {
				p.report(item.line, item.column, here, "an entry of this list is a mapping with a name, this is "+item.describe(), "")
			}
			continue
		}
		name := item.get("name")
		if id := item.get("id"); name == nil {
			name = id
		} else if id != nil {
			p.report(id.line, id.column, here, "name and id are the same key; give one", "")
		}
		switch {
		case name == nil:
			p.report(item.line, item.column, here, "an entry of this list needs a name", "")
			continue
		case name.opaque:
			continue
		case name.kind != scalarNode || name.tag != "!!str":
			p.report(name.line, name.column, here.key("name"), "a name is text, this is "+name.describe(), "")
			continue
		}
		if was := out.get(name.text); was != nil {
			p.report(name.line, name.column, at.key(name.text), fmt.Sprintf("duplicate name, first at line %d", was.line), "")
			continue
		}
		item.remove("name")
		item.remove("id")
		out.set(entry{key: name.text, line: name.line, column: name.column, value: item})
	}
	return out
}
