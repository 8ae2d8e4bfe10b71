package crontab

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// maxName leaves room for a number in the 64 characters of a name.
const maxName = 56

// names gives each job one of its own.
type names struct {
	taken map[string]bool
	next  map[string]int // the number to try for a name that is taken
}

// The reserved names are taken: a schedule's trigger is a connection as well, and those two are built in.
func newNames() names {
	return names{map[string]bool{"manual": true, "triggerd": true}, map[string]int{}}
}

// of names a job after its program: /usr/local/bin/backup.sh is backup, then backup-2.
func (n names) of(command string) string {
	base := validName(program(command))
	name := base
	for n.taken[name] {
		n.next[base] = max(n.next[base], 1) + 1
		name = fmt.Sprintf("%s-%d", base, n.next[base])
	}
	n.taken[name] = true
	return name
}

var (
	notName   = regexp.MustCompile(`[^A-Za-z0-9_]+`)
	extension = regexp.MustCompile(`^(.+)\.[A-Za-z][A-Za-z0-9]{0,3}$`)
	assigned  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

func validName(program string) string {
	s := path.Base(program)
	if m := extension.FindStringSubmatch(s); m != nil {
		s = m[1]
	}
	s = strings.Trim(notName.ReplaceAllString(s, "-"), "-_")
	if s == "" {
		return "job"
	}
	if s[0] >= '0' && s[0] <= '9' {
		s = "job-" + s
	}
	return strings.TrimRight(s[:min(len(s), maxName)], "-_")
}

// wrapper is a program that runs the one whose name comes after it.
type wrapper struct {
	valued string // its options that take a word of their own
	words  int    // words between its options and the program
}

var wrappers = map[string]wrapper{
	"chronic": {}, "command": {}, "env": {"u", 0}, "exec": {}, "flock": {"wE", 1}, "ionice": {"cn", 0}, "nice": {"n", 0}, "nohup": {}, "setsid": {},
	"sudo": {"ugh", 0}, "systemd-cat": {"tp", 0}, "time": {}, "timeout": {"ks", 1},
}

// interpreters run the script that is their first word.
var interpreters = regexp.MustCompile(`^(ba|da|k|z)?sh$|^(python|perl|php|ruby|node)[0-9.]*$`)

// program guesses which word of a shell command says best what it does. It is for a name only: any answer is safe.
func program(command string) string {
	words := shellWords(command)
	last := ""
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		switch base := path.Base(w); {
		case w == "" || separator(w) || assigned.MatchString(w) || w == "(" || w == "{" || w == "!":
			continue
		case w == "cd" || w == "test" || w == "[" || w == "." || w == "source" || w == "umask" || w == "sleep" || w == "export" || w == "set":
			rest := afterCommand(words)
			if len(rest) == 0 {
				return cmp.Or(last, w)
			}
			last, words = cmp.Or(last, w), rest
		case interpreters.MatchString(base):
			if len(words) > 0 && !strings.HasPrefix(words[0], "-") && !separator(words[0]) {
				return words[0]
			}
			return w
		default:
			wrap, ok := wrappers[base]
			if !ok {
				return w
			}
			last, words = w, wrap.skip(words)
		}
	}
	return last
}

func (w wrapper) skip(words []string) []string {
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		option := words[0]
		words = words[1:]
		if len(option) == 2 && strings.Contains(w.valued, option[1:]) && len(words) > 0 {
			words = words[1:]
		}
	}
	return words[min(w.words, len(words)):]
}

func separator(w string) bool { return strings.Trim(w, ";&|\n") == "" }

// afterCommand is what follows the next separator.
func afterCommand(words []string) []string {
	for i, w := range words {
		if separator(w) {
			return words[i+1:]
		}
	}
	return nil
}

// shellWords splits roughly as a shell does: at blanks, with quotes and backslashes, operators on their own.
func shellWords(s string) []string {
	var words []string
	var b strings.Builder
	open := false // a word has begun, though it may be empty
	end := func() {
		if open {
			words = append(words, b.String())
		}
		b.Reset()
		open = false
	}
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
			open = true
		case c == ' ' || c == '\t':
			end()
		case strings.IndexByte(";&|(){}", c) >= 0 && !(c == '{' && open || c == '}' && open):
			end()
			words = append(words, string(c))
		default:
			b.WriteByte(c)
			open = true
		}
	}
	end()
	return words
}
