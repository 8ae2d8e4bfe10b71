package crontab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// review adds what a person has to look at to a job's comments, and warns of what is this job's alone.
func (p *parser) review(job *Job) {
	add := func(text string) { job.comments = append(job.comments, "review: "+comment(text)) }
	s := &p.settings
	if job.User != "" {
		add("ran as user " + job.User + ", here the daemon's own user runs it")
	}
	if s.mailto != "" {
		add("cron mailed its output to " + mask(s.mailto) + ", triggerd sends no mail")
	}
	if job.Schedule == reboot {
		add("ran once after the machine's start, daemon.started comes at each start of a daemon")
		p.warn(job.Line, "@reboot becomes the event daemon.started: it comes at each start of a daemon, not only after the machine's, and once for each daemon")
	}
	if secretInShell.MatchString(job.Command) || secretInShell.MatchString(job.Stdin) {
		add("seems to hold a secret: move it into secrets and env")
		p.warn(job.Line, "the command seems to hold a secret, and is copied as it is: move it into secrets and env")
	}
	if first, _ := word(job.Command); first == "root" && !p.o.System {
		p.warn(job.Line, "the command is called root: /etc/crontab and /etc/cron.d are read with --system")
	}
}

// describe adds the warnings that need the whole crontab, and sorts all remarks by line.
func (p *parser) describe() {
	lines := map[string][]int{}
	var users []string
	for _, j := range p.jobs {
		if j.User != "" {
			if lines[j.User] == nil {
				users = append(users, j.User)
			}
			lines[j.User] = append(lines[j.User], j.Line)
		}
	}
	for _, u := range users {
		p.warn(lines[u][0], fmt.Sprintf("user %s: the daemon's own user will run %s", u, these(lines[u])))
	}
	if len(p.jobs) == 0 {
		p.warn(0, "there is no job")
	}
	byLine := func(a, b Note) int { return cmp.Compare(a.Line, b.Line) }
	slices.SortStableFunc(p.warnings, byLine)
	slices.SortStableFunc(p.problems, byLine)
}

// these names the jobs by their lines.
func these(lines []int) string {
	if len(lines) == 1 {
		return "this job"
	}
	const shown = 10
	var texts []string
	for _, l := range lines[:min(len(lines), shown)] {
		texts = append(texts, strconv.Itoa(l))
	}
	out := "the jobs of the lines " + strings.Join(texts, ", ")
	if len(lines) > shown {
		out += fmt.Sprintf(" and %d more", len(lines)-shown)
	}
	return out
}

// comment makes a text fit for a comment of YAML: one line, printable, without the crontab's own sign and without secrets.
func comment(s string) string {
	s = strings.TrimSpace(strings.TrimLeft(s, "#"))
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, mask(s))
	if r := []rune(s); len(r) > maxLine {
		s = string(r[:maxLine]) + "..."
	}
	return s
}
