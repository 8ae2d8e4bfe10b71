package crontab

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// noLimit stands for cron's lack of a limit.
const noLimit = "7d"

// yaml writes the configuration. It is written by hand, because what it is for is to be read by a person.
func (p *parser) yaml() []byte {
	var b bytes.Buffer
	p.header(&b)
	if keys := p.settings.order; len(keys) > 0 {
		b.WriteString("\n# Values that were in the crontab. They are looked up when the configuration is loaded, validate --allow-unset does without them.\nsecrets:\n")
		for _, k := range keys {
			s := p.settings.secrets[k]
			fmt.Fprintf(&b, "  %s: { env: %s } # line %d\n", scalar(s.name), scalar(s.env), s.line)
		}
	}
	if len(p.jobs) == 0 {
		b.WriteString("\ntriggers: {}\n")
		return b.Bytes()
	}
	b.WriteString("\ntriggers:\n")
	for i := range p.jobs {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.jobs[i].yaml(&b)
	}
	return b.Bytes()
}

func (p *parser) header(b *bytes.Buffer) {
	scheduled, zoned := false, false
	for _, j := range p.jobs {
		if j.Schedule != reboot {
			scheduled = true
			zoned = zoned || j.Timezone == p.o.Timezone
		}
	}
	fmt.Fprintf(b, "# From the crontab %s, by `triggerd import crontab`. Look for \"review:\", then check it with `triggerd validate`.\n#\n", comment(p.o.File))
	b.WriteString("# Kept as it was with cron:\n")
	if scheduled {
		b.WriteString("# - Times that pass while triggerd is down are not made up for: catch_up: none. With latest, the last of them runs at the start.\n")
	}
	b.WriteString("# - A job that fails, or that a crash cuts short, is not repeated: retry: { attempts: 1 }. Without the line there are five attempts.\n" +
		"# - A job may take long, a week at most: timeout: " + noLimit + ". Without the line an attempt may take an hour.\n" +
		"# - Commands start in the HOME of whoever runs them: dir.\n" +
		"# Different from cron:\n")
	if scheduled {
		b.WriteString("# - A job does not start while its last run is still going. Cron starts it all the same; for that, write overlap: allow.\n")
	}
	b.WriteString("# - A stop of triggerd ends jobs that take longer than server.drain_timeout, and its next start runs them again; on_crash: park leaves them to a person.\n" +
		"# - Where a job's env has none, PATH, LANG and TZ are the daemon's, and SHELL, USER and LOGNAME are not set. Cron's PATH is /usr/bin:/bin.\n" +
		"# - No mail is sent. A failed job is a dead turn: `triggerd turns list --state dead`, and `triggerd turns show` has its output.\n")
	if zoned {
		fmt.Fprintf(b, "# Times without a zone of their own are assumed to be in %s (%s).\n", comment(p.o.Timezone), comment(p.o.Zone))
	}
}

func (j *Job) yaml(b *bytes.Buffer) {
	for _, c := range j.comments {
		fmt.Fprintf(b, "  # %s\n", c)
	}
	fmt.Fprintf(b, "  %s: # line %d\n", scalar(j.Name), j.Line)
	if j.Schedule == reboot {
		b.WriteString("    connection: triggerd\n    event: daemon.started\n")
	} else {
		fmt.Fprintf(b, "    cron: { schedule: %s, timezone: %s, catch_up: none }\n", quote(j.Schedule), scalar(j.Timezone))
	}
	b.WriteString("    retry: { attempts: 1 }\n    timeout: " + noLimit + "\n    run:\n      exec:\n")
	fmt.Fprintf(b, "        command: [%s, -c, %s]\n", scalar(escape(j.Shell)), quote(escape(j.Command)))
	dir := "${HOME:-/}"
	if j.Home != "" {
		dir = escape(j.Home)
	}
	fmt.Fprintf(b, "        dir: %s\n", scalar(dir))
	if len(j.Env) > 0 {
		b.WriteString("        env:\n")
	}
	for _, v := range j.Env {
		value := escape(v.Value)
		if v.Secret != "" {
			value = secretRef(v.Secret)
		}
		fmt.Fprintf(b, "          %s: %s\n", scalar(v.Name), quote(value))
	}
	fmt.Fprintf(b, "        stdin: %s\n", quote(escape(j.Stdin)))
}

// secretRef names a secret in a template. Names in lower case may be reserved words of CEL, which an index is not.
func secretRef(name string) string {
	if name == strings.ToLower(name) {
		return `${{ secrets["` + name + `"] }}`
	}
	return "${{ secrets." + name + " }}"
}

var dollars = regexp.MustCompile(`\$+\{?`)

// escape writes a text so that loading the configuration (`${VAR}`, `$$`) and its templates (`${{ CEL }}`) give it back as it was.
// Doubling does for both: `$$` is one dollar sign, and of `$${{` loading keeps both and the template makes `${{`.
// A dollar sign that means nothing to either, as in $HOME and $(date), is left as it is.
func escape(s string) string {
	return dollars.ReplaceAllStringFunc(s, func(run string) string {
		n := strings.Count(run, "$")
		if run == "$" {
			return run
		}
		return strings.Repeat("$", n) + run
	})
}

var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// scalar writes a text without quotes where no parser could take it for anything else.
func scalar(s string) string {
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return quote(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return quote(s)
}

// quote writes a text in quotes: single ones, in which nothing is special, unless it has what only double ones can escape.
func quote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
