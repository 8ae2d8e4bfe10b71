package crontab

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/triggerd/triggerd/cron"
)

const (
	blanks = " \t"         // what cron skips between fields
	spaces = " \t\n\v\f\r" // what it skips in settings
	ownTop = "TRIGGERD_"   // names that triggerd sets itself
)

// settings are what the lines so far have set.
type settings struct {
	shell, home string
	cronTZ      string // zone; "" where none was set
	mailto      string
	env         []Variable
	cronsOwn    []Variable // for cron itself: a job gets them only when it uses them
	secrets     map[string]secret
	taken       map[string]bool // names of secrets, and of the variables that they come from
	order       []string        // keys of secrets, as they came
	envBytes    int
}

// secret is where the configuration gets a value from that it must not hold.
type secret struct {
	name, env string
	line      int
}

// settingName splits a line at the equals sign if it is a setting, by the rule of cron: one word, which may be quoted, then the sign.
func settingName(line string) (name, rest string, ok bool) {
	if q := line[0]; q == '\'' || q == '"' {
		name, rest, ok = strings.Cut(line[1:], string(q))
		if !ok || strings.Contains(name, "=") {
			return "", "", false
		}
	} else {
		end := strings.IndexAny(line, "="+spaces)
		if end < 0 {
			return "", "", false
		}
		name, rest = line[:end], line[end:]
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, spaces), "=")
	return name, rest, ok
}

// settingValue reads what follows the equals sign. Quotes keep blanks and are no part of the value; there are no escapes.
// The error does not quote the value.
func settingValue(rest string) (string, error) {
	rest = strings.Trim(rest, spaces)
	if rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return rest, nil
	}
	value, after, closed := strings.Cut(rest[1:], rest[:1])
	switch {
	case !closed:
		return "", errors.New("the quote is not closed")
	case after != "":
		return "", errors.New("something follows the closing quote, also a comment must not")
	}
	return value, nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (p *parser) setting(name, rest string) {
	if !variableName.MatchString(name) {
		p.problem(p.line, "name", fmt.Sprintf("%q cannot name a variable", cut(name)))
		return
	}
	value, err := settingValue(rest)
	if err == nil && strings.HasPrefix(name, ownTop) {
		err = errors.New("names that start with " + ownTop + " are set by triggerd")
	}
	if err == nil {
		err = p.special(name, value)
	}
	if err != nil {
		p.problem(p.line, name, name+": "+err.Error())
	}
}

// special applies a setting: some mean something to cron itself.
func (p *parser) special(name, value string) error {
	s := &p.settings
	switch name {
	case "CRON_TZ":
		if _, err := cron.Zone(value); err != nil {
			return errors.New("there is no such time zone")
		}
		s.cronTZ = value
		set(&s.cronsOwn, Variable{Name: name, Value: value})
		return nil
	case "TZ":
		p.warn(p.line, "TZ is given to the commands; as with Debian's cron and cronie, schedules go by CRON_TZ or else the machine's zone")
	case "SHELL":
		if !strings.HasPrefix(value, "/") {
			return errors.New("is not an absolute path; cron does not look into PATH for it")
		}
		s.shell = value
	case "HOME":
		if !strings.HasPrefix(value, "/") {
			return errors.New("is not an absolute path; cron expands neither ~ nor variables here")
		}
		s.home = value
	case "LOGNAME":
		p.warn(p.line, "LOGNAME is left out: cron ignores the setting too")
		return nil
	case "MAILTO":
		p.mailto(value)
		set(&s.cronsOwn, Variable{Name: name, Value: value})
		return nil
	case "RANDOM_DELAY":
		p.warn(p.line, "RANDOM_DELAY is left out: jobs start at their minute, unless their schedules get a jitter")
		fallthrough
	case "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING":
		set(&s.cronsOwn, Variable{Name: name, Value: value})
		return nil
	}
	p.variable(name, value)
	return nil
}

func (p *parser) mailto(value string) {
	p.settings.mailto = value
	if value != "" {
		p.warn(p.line, "MAILTO: no mail is sent; failed jobs are dead turns (`triggerd turns list --state dead`), and a trigger on connection triggerd, event turn.dead, can tell somebody")
	}
}

// variable sets a variable of the jobs below.
func (p *parser) variable(name, value string) {
	v := Variable{Name: name, Value: value}
	if isSecret(name, value) {
		known := p.settings.secrets[name+"="+value]
		if known.name == "" {
			known = p.addSecret(name, value)
		}
		v = Variable{Name: name, Secret: known.name}
	}
	set(&p.settings.env, v)
	p.settings.envBytes = 0
	for _, v := range p.settings.env {
		p.settings.envBytes += len(v.Name) + len(v.Value) + len(v.Secret)
	}
}

// addSecret finds a name for a secret and for the variable from which the daemon gets it. The value is kept to
// tell a second one of the same name apart, and for nothing else.
func (p *parser) addSecret(name, value string) secret {
	s := &p.settings
	out := secret{name: s.free("secret ", secretName(name)), env: s.free("variable ", name), line: p.line}
	s.secrets[name+"="+value] = out
	s.order = append(s.order, name+"="+value)
	p.warn(p.line, "the value of "+name+" looks like a secret and is not copied: the daemon needs it in its environment as "+out.env+", or change secrets."+out.name+" to a file")
	return out
}

// free takes a name of a kind, with a number behind it where somebody has it.
func (s *settings) free(kind, name string) string {
	out := name
	for n := 2; s.taken[kind+out]; n++ {
		out = fmt.Sprintf("%s_%d", name, n)
	}
	s.taken[kind+out] = true
	return out
}

// secretName makes a variable's name into one of the section secrets, with room for a number.
func secretName(variable string) string {
	name := strings.TrimLeft(variable, "_0123456789")
	if name == "" {
		return "secret"
	}
	return name[:min(len(name), maxName)]
}

// set replaces a variable or adds it.
func set(env *[]Variable, v Variable) {
	i := slices.IndexFunc(*env, func(o Variable) bool { return o.Name == v.Name })
	if i < 0 {
		*env = append(*env, v)
		return
	}
	(*env)[i] = v
}

// secretWords are parts of names whose values are none of the configuration's business. Better one too many: a person looks at each.
const secretWords = `pass|pwd|token|secret|key|credential`

var (
	secretVariable = regexp.MustCompile(`(?i)pass|_pwd$|token|secret|key|credential`)
	urlPassword    = regexp.MustCompile(`(://[^/\s:@]*:)[^@/\s]+@`)
	secretInText   = regexp.MustCompile(`(?i)((?:` + secretWords + `)[a-z0-9_-]*\s*[=:]\s*)\S.*`)
	secretInShell  = regexp.MustCompile(`(?i)(?:pass|passwd|password|passphrase|pwd|token|secret|api[_-]?key|access[_-]?key|credentials?)=["']?[^\s$"'` + "`" + `]|://[^/\s:@]*:[^@/\s$]+@`)
)

func isSecret(name, value string) bool {
	return value != "" && (secretVariable.MatchString(name) || urlPassword.MatchString(value))
}

// mask takes what looks like a secret out of a comment.
func mask(s string) string {
	return urlPassword.ReplaceAllString(secretInText.ReplaceAllString(s, "$1***"), "$1***@")
}
