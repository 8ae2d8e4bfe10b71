package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
)

// Error is what the Compile functions return: one problem, and where it is.
type Error struct {
	Offset int // in bytes, from the start of the source
	Line   int // from 1
	Column int // from 1, in characters
	Msg    string
}

// Error is the message with its place; use Msg where the place is shown in another way.
func (e *Error) Error() string {
	if e.Line > 1 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg)
	}
	return fmt.Sprintf("column %d: %s", e.Column, e.Msg)
}

// errorAt places a message at a byte offset of src.
func errorAt(src string, offset int, msg string) *Error {
	offset = min(max(offset, 0), len(src))
	before := src[:offset]
	line := strings.Count(before, "\n")
	start := strings.LastIndexByte(before, '\n') + 1
	return &Error{Offset: offset, Line: line + 1, Column: utf8.RuneCountInString(before[start:]) + 1, Msg: msg}
}

// shift moves an error of an expression to its place in the text around it.
func (e *Error) shift(src string, base int) *Error {
	return errorAt(src, base+e.Offset, e.Msg)
}

// byteOffset turns CEL's place (line from 1, column from 0 in characters) into a byte offset.
func byteOffset(src string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(src[offset:], '\n')
		if i < 0 {
			return len(src)
		}
		offset += i + 1
	}
	for ; column > 0 && offset < len(src); column-- {
		_, n := utf8.DecodeRuneInString(src[offset:])
		offset += n
	}
	return offset
}

// fromIssues makes one error of what CEL reports: the first problem, and how many more there are.
func fromIssues(src string, issues *cel.Issues, hint func(*cel.Error) string) *Error {
	errs := issues.Errors()
	first := errs[0]
	msg := cleanMessage(first.Message)
	if h := hint(first); h != "" {
		msg += ": " + h
	}
	if n := len(errs) - 1; n > 0 {
		msg += fmt.Sprintf(" (and %d more)", n)
	}
	return errorAt(src, byteOffset(src, first.Location.Line(), first.Location.Column()), msg)
}

// maxMessage bounds a message: the parser lists every token that it would have taken.
const maxMessage = 240

func cleanMessage(msg string) string {
	if i := strings.Index(msg, "enable with `"); i > 0 { // the advice is for Go programs that embed CEL
		msg = strings.TrimRight(msg[:i], " (,")
		if strings.Count(msg, "(") > strings.Count(msg, ")") {
			msg += ")"
		}
	}
	if i := strings.Index(msg, " expecting {"); i > 0 {
		msg = msg[:i]
	}
	return clip(oneLine(msg), maxMessage)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// clip cuts s to at most n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-3]) + "..."
}

// nearest is the candidate most like name, "" when none is close.
func nearest(name string, candidates []string) string {
	best, bestDist := "", min(3, max(2, len(name)/2))
	for _, c := range candidates {
		if d := Distance(name, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// Distance counts the insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment).
// Suggestions of names, here and in configurations, go by it. It takes time and memory in proportion to the product of the lengths.
func Distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
