package crontab

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds on a crontab. The first two are those of Debian's cron; the last ones are what one configuration file may hold.
const (
	maxFile   = 256 << 10 // bytes of a crontab
	maxLine   = 1000      // characters of a setting or a job
	maxValues = 90_000    // values in the configuration
	maxYAML   = 4 << 20   // bytes of the configuration
)

// Options say how to read a crontab.
type Options struct {
	File     string // what problems and the header call it
	System   bool   // a user stands between time and command, as in /etc/crontab and /etc/cron.d
	Timezone string // IANA zone of the jobs above which no CRON_TZ stands
	Zone     string // says where Timezone comes from, for the header: "--timezone"
}

// Result is what became of a crontab.
type Result struct {
	YAML     []byte // a complete configuration; the same for the same crontab and options
	Jobs     []Job  // in the crontab's order
	Warnings []Note // what a person has to look at, by line
}

// Job is one line of a crontab that runs something.
type Job struct {
	Line     int
	Name     string     // of its trigger: valid and unique
	Schedule string     // five fields, a name such as "@daily", or "@reboot"
	Timezone string     // IANA zone in which Schedule is meant
	User     string     // of a system crontab
	Shell    string     // what runs Command, with -c
	Command  string     // byte for byte what cron gives to the shell
	Stdin    string     // byte for byte what cron writes to its standard input
	Home     string     // the HOME setting, where the command starts; "" is the home of whoever runs it
	Env      []Variable // in the order of the crontab
	comments []string   // what stands above it, then what to look at
}

// Variable is a setting that holds for a job.
type Variable struct {
	Name   string
	Value  string // "" for a secret
	Secret string // the name of the configuration's secret that has the value; "" for a plain one
}

// Note is a remark about a line.
type Note struct {
	Line  int    `json:"line,omitempty"` // counted from 1; 0 for the whole file
	Field string `json:"field,omitempty"`
	Text  string `json:"message"`
}

// Errors are all problems of a crontab, by line.
type Errors struct {
	File     string
	Problems []Note
}

// Error has a line for each problem: file, line and what is wrong there.
func (e *Errors) Error() string {
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.At(e.File))
	}
	return strings.Join(lines, "\n")
}

// At is the note with its place in the file of that name.
func (n Note) At(file string) string {
	if n.Line == 0 {
		return file + ": " + n.Text
	}
	return fmt.Sprintf("%s:%d: %s", file, n.Line, n.Text)
}

// Import reads a crontab to its end. The error is an [*Errors] with every problem that was found, unless reading failed.
func Import(r io.Reader, o Options) (*Result, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.File, err)
	}
	p := newParser(o)
	if len(data) > maxFile {
		p.problem(0, "", fmt.Sprintf("is larger than %d bytes, which is more than cron takes: split it", maxFile))
	} else {
		p.file(string(data))
	}
	p.describe()
	if len(p.problems) > 0 {
		return nil, &Errors{o.File, p.problems}
	}
	yaml := p.yaml()
	if len(yaml) > maxYAML {
		p.problem(0, "", fmt.Sprintf("becomes a configuration of more than %d bytes: split it", maxYAML))
		return nil, &Errors{o.File, p.problems}
	}
	return &Result{YAML: yaml, Jobs: p.jobs, Warnings: p.warnings}, nil
}

// parser reads lines from top to bottom. Settings hold for the jobs below them.
type parser struct {
	o        Options
	line     int
	above    []string // comments directly above the present line
	settings settings
	names    names
	values   int // that the configuration will hold
	bytes    int // of settings, counted once for each job
	full     bool

	jobs     []Job
	problems []Note
	warnings []Note
}

func newParser(o Options) *parser {
	return &parser{o: o, settings: settings{shell: "/bin/sh", secrets: map[string]secret{}, taken: map[string]bool{}}, names: newNames()}
}

func (p *parser) problem(line int, field, text string) {
	p.problems = append(p.problems, Note{line, field, text})
}

func (p *parser) warn(line int, text string) {
	p.warnings = append(p.warnings, Note{Line: line, Text: text})
}

func (p *parser) file(text string) {
	text = strings.TrimPrefix(text, "\ufeff")
	for raw := range strings.SplitSeq(text, "\n") {
		p.line++
		line := strings.TrimLeft(strings.TrimSuffix(raw, "\r"), blanks)
		switch {
		case strings.IndexByte(line, 0) >= 0:
			p.problem(p.line, "", "the line holds a NUL byte")
		case line == "":
		case line[0] == '#':
			if c := comment(line); c != "" {
				p.above = append(p.above, c)
			}
			continue // the comments go on
		case !utf8.ValidString(line):
			p.problem(p.line, "", "the line is not UTF-8: convert the file, for example with iconv")
		case utf8.RuneCountInString(line) > maxLine:
			p.problem(p.line, "", fmt.Sprintf("the line has more than %d characters, which is more than cron takes", maxLine))
		default:
			p.active(line)
		}
		p.above = nil
	}
}

// active reads a line that cron acts on.
func (p *parser) active(line string) {
	name, rest, ok := settingName(line)
	if ok {
		p.setting(name, rest)
		return
	}
	p.entry(line)
}
