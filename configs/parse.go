package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Bounds on a file. They are far above any real configuration and keep a hostile one from using up memory or stack.
const (
	maxFile  = 4 << 20 // bytes of one file
	maxNodes = 100_000 // values of one file after its aliases are expanded
	maxDepth = 64      // values inside each other
	maxFixes = 50      // unquoted values that are quoted in memory so that the rest of the file can be read
)

// parser turns one file into a tree of nodes.
type parser struct {
	doc      *document
	env      func(string) (string, bool)
	unset    bool // unset variables are allowed
	problems *problems
	nodes    int
	fixed    map[int]*Problem    // lines whose value was quoted after an error: the error, until its path is known, then nil
	mended   int                 // the last of them
	open     map[*yaml.Node]bool // anchors that are being expanded
	full     bool                // maxNodes was reported
}

// parse reads data. The node is nil when there is nothing in it or when it cannot be read; ok is false only for the latter.
func (p *parser) parse(data []byte) (root *node, ok bool) {
	defer func() {
		if r := recover(); r != nil { // a fault in the YAML library must not take the daemon down with it
			p.report(1, 1, nil, "not readable as YAML", "")
			root, ok = nil, false
		}
	}()
	if len(data) > maxFile {
		p.report(0, 0, nil, fmt.Sprintf("file has %d bytes, the limit is %d", len(data), maxFile), "")
		return nil, false
	}
	p.fixed = map[int]*Problem{}
	defer p.flush()
	for range maxFixes {
		p.doc.lines = strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
		y, err := decodeYAML(data)
		if err == nil {
			return p.root(y), true
		}
		fixed, again := p.syntax(data, err)
		if !again {
			return nil, false
		}
		data = fixed
	}
	return nil, false
}

// errManyDocuments: a second document starts at this line.
type errManyDocuments struct{ line int }

func (errManyDocuments) Error() string { return "several documents in one file" }

// decodeYAML returns the only document of data, or nil where there is none.
func decodeYAML(data []byte) (*yaml.Node, error) {
	l, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var doc, next yaml.Node
	if err := l.Load(&doc); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := l.Load(&next); {
	case err == io.EOF:
		return &doc, nil
	case err == nil:
		return nil, errManyDocuments{next.Line}
	default:
		return nil, err
	}
}

// A line with a value: what comes before it, the value, a comment.
var valueLine = regexp.MustCompile(`^(\s*(?:- +)*(?:[A-Za-z0-9_.-]+: +)?)(\S.*?)(\s+#.*)?\s*$`)

// syntax reports an error of the YAML library. Where a value on a single line is to blame, it returns the file with that value quoted,
// so that the problems behind it are found in the same run; nothing more is said about the value.
func (p *parser) syntax(data []byte, err error) (fixed []byte, again bool) {
	var many errManyDocuments
	if errors.As(err, &many) {
		p.report(max(many.line, 1), 1, nil, many.Error(), "put them into files of their own, and name the files or their folder")
		return nil, false
	}
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		p.report(1, 1, nil, err.Error(), "")
		return nil, false
	}
	line, column := le.Mark.Line, le.Mark.Column
	if line <= 0 {
		line, column = firstBadByte(data)
		p.report(line, column, nil, le.Message, "a configuration is text in UTF-8")
		return nil, false
	}
	if line <= p.mended { // quoting did not help
		return nil, false
	}
	p.mended = line
	src := ""
	if line <= len(p.doc.lines) {
		src = strings.TrimSuffix(p.doc.lines[line-1], "\r")
	}
	if tab := strings.IndexByte(src[:len(src)-len(strings.TrimLeft(src, " \t"))], '\t'); tab >= 0 {
		p.report(line, tab+1, nil, "tab in the indentation", "indent with spaces")
		return nil, false
	}
	m := valueLine.FindStringSubmatch(src)
	if m == nil || strings.TrimSpace(m[1]) == "" || le.ContextMark.Line > 0 && le.ContextMark.Line != line {
		p.report(line, column, nil, le.Message, "")
		return nil, false
	}
	quoted := "'" + strings.ReplaceAll(m[2], "'", "''") + "'"
	if strings.ContainsAny(m[2][:1], special) {
		column = len([]rune(m[1])) + 1
	}
	hint := syntaxHint(le.Message, m[2], "quote it: "+strings.TrimSpace(m[1])+" "+cut(quoted, 120))
	p.fixed[line] = &Problem{File: p.doc.file, Line: line, Column: column, Msg: le.Message, Hint: hint}
	p.doc.lines[line-1] = m[1] + quoted + m[3]
	return []byte(strings.Join(p.doc.lines, "\n")), true
}

// special are the characters that mean something to YAML at the start of a value.
const special = "*!&%@`|>"

// syntaxHint says what to do about an error in a line whose value is given.
func syntaxHint(msg, value, quoteIt string) string {
	switch {
	case strings.Contains(msg, "',' or"):
		return "inside { } and [ ], quote a text that holds braces, brackets or commas"
	case strings.ContainsAny(value[:1], "{[\"'"):
		return "check the indentation and the quotes"
	case strings.Contains(msg, "mapping values are not allowed"):
		return quoteIt + "; or check the indentation"
	}
	return quoteIt
}

// located reports the error that made a line's value be quoted, now that the value's path is known. It tells whether there was one.
func (p *parser) located(line int, at path) bool {
	problem, ok := p.fixed[line]
	if problem != nil {
		problem.Path = at.String()
		p.problems.add(*problem)
		p.fixed[line] = nil
	}
	return ok
}

// flush reports the errors whose values were not met again.
func (p *parser) flush() {
	for line := range p.fixed {
		p.located(line, nil)
	}
}

// firstBadByte finds what the YAML library refuses without saying where: an invalid encoding or a control character.
func firstBadByte(data []byte) (line, column int) {
	line, column = 1, 1
	for _, r := range string(data) {
		switch {
		case r == '\n':
			line, column = line+1, 1
			continue
		case r == '\ufffd' || r < ' ' && r != '\t' && r != '\r' || r == 0x7f:
			return line, column
		}
		column++
	}
	return 1, 1
}

func (p *parser) report(line, column int, at path, msg, hint string) {
	p.problems.add(Problem{File: p.doc.file, Line: line, Column: column, Path: at.String(), Msg: msg, Hint: hint})
}
