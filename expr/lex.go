package expr

import "strings"

// The little of CEL's lexical grammar that finding the end of an expression and its && takes: strings, comments, brackets.

// token is a piece of CEL source: a whole string, comment or word, or else one byte.
type token struct {
	start, end   int
	unterminated bool // a string without its end
}

// nextToken reads the token at i, which is inside src.
func nextToken(src string, i int) token {
	switch c := src[i]; {
	case c == '"' || c == '\'':
		return readString(src, i, i, false)
	case strings.HasPrefix(src[i:], "//"):
		if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
			return token{start: i, end: i + n}
		}
		return token{start: i, end: len(src)}
	case wordByte(c):
		j := i
		for j < len(src) && wordByte(src[j]) {
			j++
		}
		if j < len(src) && (src[j] == '"' || src[j] == '\'') {
			switch strings.ToLower(src[i:j]) {
			case "r", "br", "rb":
				return readString(src, i, j, true)
			case "b":
				return readString(src, i, j, false)
			}
		}
		return token{start: i, end: j}
	}
	return token{start: i, end: i + 1}
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// readString reads the string whose first quote is at q; start is where its prefix begins.
func readString(src string, start, q int, raw bool) token {
	quote := src[q : q+1]
	triple := strings.HasPrefix(src[q:], strings.Repeat(quote, 3))
	if triple {
		quote = strings.Repeat(quote, 3)
	}
	for i := q + len(quote); i < len(src); i++ {
		switch {
		case src[i] == '\\' && !raw:
			i++
		case !triple && (src[i] == '\n' || src[i] == '\r'):
			return token{start: start, end: i, unterminated: true}
		case strings.HasPrefix(src[i:], quote):
			return token{start: start, end: i + len(quote)}
		}
	}
	return token{start: start, end: len(src), unterminated: true}
}

// brackets follows the nesting of (), [] and {}.
type brackets []byte

// see takes a byte of code and reports whether it closed a bracket.
func (b *brackets) see(c byte) bool {
	switch c {
	case '(':
		*b = append(*b, ')')
	case '[':
		*b = append(*b, ']')
	case '{':
		*b = append(*b, '}')
	case ')', ']', '}':
		if n := len(*b); n > 0 && (*b)[n-1] == c {
			*b = (*b)[:n-1]
			return true
		}
	}
	return false
}

// expressionEnd finds the `}}` that ends the expression that starts at i: not one in a string, a comment or a map.
// Where there is none, open is the offset of the string that never ends, or -1.
func expressionEnd(src string, i int) (end, open int, ok bool) {
	var nest brackets
	open = -1
	for i < len(src) {
		t := nextToken(src, i)
		if t.unterminated && open < 0 {
			open = t.start
		}
		if t.end == i+1 && !nest.see(src[i]) && strings.HasPrefix(src[i:], "}}") {
			return i, -1, true
		}
		i = t.end
	}
	return 0, open, false
}

// clauses cuts an expression at its outermost &&, through brackets around the whole. One that is not a chain of && is one clause.
func clauses(src string) []string {
	src = strings.TrimSpace(src)
	if inner, ok := unbracket(src); ok {
		return clauses(inner)
	}
	var nest brackets
	var cuts []int
	for i := 0; i < len(src); {
		t := nextToken(src, i)
		if len(nest) == 0 && t.end == i+1 {
			switch {
			case strings.HasPrefix(src[i:], "&&"):
				cuts = append(cuts, i)
				t.end = i + 2
			case strings.HasPrefix(src[i:], "||"), src[i] == '?' && (i == 0 || src[i-1] != '.'):
				return []string{src} // these bind less than &&
			}
		}
		if t.end == i+1 {
			nest.see(src[i])
		}
		i = t.end
	}
	if len(cuts) == 0 {
		return []string{src}
	}
	var out []string
	from := 0
	for _, cut := range append(cuts, len(src)) {
		out = append(out, clauses(src[from:cut])...)
		from = min(cut+2, len(src))
	}
	return out
}

// unbracket takes off brackets that are around all of src.
func unbracket(src string) (string, bool) {
	if !strings.HasPrefix(src, "(") {
		return "", false
	}
	var nest brackets
	for i := 0; i < len(src); {
		t := nextToken(src, i)
		if t.end == i+1 && nest.see(src[i]) && len(nest) == 0 {
			return src[1:i], t.end == len(src)
		}
		i = t.end
	}
	return "", false
}
