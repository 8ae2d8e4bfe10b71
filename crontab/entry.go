package crontab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/triggerd/triggerd/cron"
)

const reboot = "@reboot"

var fieldNames = [5]string{"minute", "hour", "day of month", "month", "day of week"}

// entry reads a job: when, in a system crontab who, and what.
func (p *parser) entry(line string) {
	rest := line
	if after, quiet := strings.CutPrefix(line, "-"); quiet {
		rest = after // cronie: no line in syslog. There is none anyway.
	}
	job := Job{Line: p.line, comments: p.above}
	schedule, rest, ok := p.when(rest)
	if !ok {
		return
	}
	job.Schedule = schedule
	if p.o.System {
		if job.User, rest, ok = p.user(rest); !ok {
			return
		}
	}
	switch {
	case rest == "":
		p.problem(p.line, "command", "there is no command")
		return
	case rest[0] == '*':
		p.problem(p.line, "command", "the command starts with *: is there a time field too many?")
		return
	}
	job.Command, job.Stdin = percent(rest)
	p.add(job)
}

// when reads the time. It looks at all five fields, whatever is wrong with one of them.
func (p *parser) when(line string) (schedule, rest string, ok bool) {
	if strings.HasPrefix(line, "@") {
		schedule, rest = word(line)
		if schedule == reboot {
			return schedule, rest, true
		}
		if _, err := cron.Parse(schedule, cron.Options{Zone: time.UTC}); err != nil {
			p.problem(p.line, "time", fmt.Sprintf("%q is no time that a crontab knows: use @reboot, @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually", cut(schedule)))
			return "", "", false
		}
		return schedule, rest, true
	}
	if first, _ := word(line); first == "export" || first == "setenv" {
		p.problem(p.line, "", first+" is the shell's: a crontab sets a variable with NAME=value alone")
		return "", "", false
	}
	var fields []string
	for rest = line; len(fields) < len(fieldNames) && rest != ""; {
		var field string
		field, rest = word(rest)
		fields = append(fields, field)
	}
	if len(fields) < len(fieldNames) {
		p.problem(p.line, "time", fmt.Sprintf("want five time fields and a command, found %d fields", len(fields)))
		return "", "", false
	}
	schedule = strings.Join(fields, " ")
	return schedule, rest, p.fields(fields, schedule)
}

var steppedValue = regexp.MustCompile(`(^|,)[0-9A-Za-z]+/`)

func (p *parser) fields(fields []string, schedule string) bool {
	good := true
	if !strings.ContainsAny(fields[0], "0123456789*") {
		// No time at all but prose, or a setting without its sign, whose value is not to be quoted.
		fields = fields[:1]
	}
	for i, f := range fields {
		if text := fieldProblem(i, f); text != "" {
			good = false
			p.problem(p.line, fieldNames[i], text)
		} else if steppedValue.MatchString(f) {
			p.warn(p.line, fmt.Sprintf("%s field %q: cron wants a range or * before a step and ignores or refuses this; here it counts from the value to the end", fieldNames[i], f))
		}
	}
	if !good {
		return false
	}
	if _, err := cron.Parse(schedule, cron.Options{Zone: time.UTC}); err != nil {
		p.problem(p.line, "time", err.Error())
		return false
	}
	return true
}

// fieldProblem says what is wrong with one field, "" for nothing. It does not quote what may be a setting gone wrong.
func fieldProblem(i int, field string) string {
	for _, r := range field {
		if r <= ' ' || r > '~' || r == '=' {
			return fieldNames[i] + " field: holds " + fmt.Sprintf("%q", r)
		}
	}
	if strings.Contains(field, "~") {
		return fmt.Sprintf("%s field %q: a random time within a range is cronie's only: choose a time, and a jitter if it matters", fieldNames[i], cut(field))
	}
	alone := [5]string{"*", "*", "*", "*", "*"}
	alone[i] = field
	if _, err := cron.Parse(strings.Join(alone[:], " "), cron.Options{Zone: time.UTC}); err != nil {
		if !strings.Contains(err.Error(), fieldNames[i]) {
			return fieldNames[i] + " field: " + err.Error()
		}
		return err.Error()
	}
	return ""
}

// user reads the column of a system crontab.
func (p *parser) user(line string) (user, rest string, ok bool) {
	user, rest = word(line)
	switch {
	case user == "":
		p.problem(p.line, "user", "there is neither a user nor a command")
	case !userName.MatchString(user):
		p.problem(p.line, "user", fmt.Sprintf("%q is not a user: a user's own crontab has no such column and is read without --system", cut(user)))
	default:
		return user, rest, true
	}
	return "", "", false
}

// A user, for FreeBSD and cronie with a group or class.
var userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@-]*\$?$`)

// percent splits what follows the time fields as cron does: the first `%` without a backslash ends the command, further ones are line
// breaks of its standard input, and `\%` is a percent sign. No other escape exists. Input that does not end with a line break gets one.
func percent(s string) (command, stdin string) {
	var b strings.Builder
	escaped := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case escaped:
			if c != '%' {
				b.WriteByte('\\')
			}
			// A backslash that was escaped itself escapes nothing in the command.
			b.WriteByte(c)
			escaped = false
		case c == '\\':
			escaped = true
		case c == '%':
			return b.String(), input(s[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	if escaped {
		b.WriteByte('\\')
	}
	return b.String(), ""
}

// input is what cron writes to a command. Unlike in the command, each backslash counts for the character after it, also one after a backslash.
func input(s string) string {
	var b strings.Builder
	escaped, open := false, false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case escaped && c != '%':
			b.WriteByte('\\')
		case !escaped && c == '%':
			c = '\n'
		}
		if escaped = c == '\\'; !escaped {
			b.WriteByte(c)
			open = c != '\n'
		}
	}
	if escaped {
		b.WriteByte('\\')
	}
	if open {
		b.WriteByte('\n')
	}
	return b.String()
}

// add completes a job with what holds at its place.
func (p *parser) add(job Job) {
	s := &p.settings
	job.Name = p.names.of(job.Command)
	job.Shell, job.Home = s.shell, s.home
	job.Timezone = p.o.Timezone
	if s.cronTZ != "" {
		job.Timezone = s.cronTZ
	}
	p.values += 20 + len(s.env) + len(s.cronsOwn)
	p.bytes += s.envBytes
	if p.values > maxValues || p.bytes > maxYAML {
		if !p.full {
			p.full = true
			p.problem(p.line, "", "from this job on it is too much for one configuration: split the crontab")
		}
		return
	}
	job.Env = slices.Clone(s.env)
	for _, v := range s.cronsOwn {
		if strings.Contains(job.Command, v.Name) {
			job.Env = append(job.Env, v)
		}
	}
	job.comments = slices.Clone(job.comments)
	p.review(&job)
	p.jobs = append(p.jobs, job)
}

// word splits a line after its first word and the blanks that follow it.
func word(line string) (first, rest string) {
	end := strings.IndexAny(line, blanks)
	if end < 0 {
		return line, ""
	}
	return line[:end], strings.TrimLeft(line[end:], blanks)
}

// cut keeps what is quoted in a problem short.
func cut(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "..."
	}
	return s
}
