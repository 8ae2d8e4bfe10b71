package configs

import (
	"strconv"
	"strings"
)

// path leads from the root of a configuration to a value. A step is a key, or "[3]" in a list.
type path []string

func (p path) key(k string) path { return append(p[:len(p):len(p)], k) }

func (p path) index(i int) path { return p.key("[" + strconv.Itoa(i) + "]") }

// String is the path as people write it: triggers.nightly.run.exec.command[0].
func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch {
		case strings.HasPrefix(step, "[") && strings.HasSuffix(step, "]"):
			b.WriteString(step)
			continue
		case strings.ContainsAny(step, ".[] \t\n\"") || step == "":
			b.WriteString("[" + strconv.Quote(cut(step, 60)) + "]")
			continue
		case i > 0:
			b.WriteByte('.')
		}
		b.WriteString(cut(step, 80))
	}
	return b.String()
}

// cut shortens s for a message.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
