package configs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// errUnset: a variable has no value and no default.
type errUnset struct{ name string }

func (e errUnset) Error() string { return fmt.Sprintf("variable %s is not set", e.name) }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// interpolate expands `${VAR}` and `${VAR:-default}`; the default also stands in for an empty value. `$$` is a dollar sign.
// `${{ ... }}` is left alone to its end, and so is `$${{`, which templates read as a literal `${{`. Any other dollar sign is itself.
// The error is an [errUnset], or blames the syntax. A value is never looked into again.
func interpolate(s string, env func(string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch {
		case strings.HasPrefix(s, "$${{"):
			b.WriteString("$${{")
			s = s[4:]
		case strings.HasPrefix(s, "$$"):
			b.WriteByte('$')
			s = s[2:]
		case strings.HasPrefix(s, "${{"):
			end := expressionEnd(s)
			b.WriteString(s[:end])
			s = s[end:]
		case strings.HasPrefix(s, "${"):
			value, rest, err := variable(s, env)
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			s = rest
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
	b.WriteString(s)
	return b.String(), nil
}

// expressionEnd is where the `${{ ... }}` at the start of s ends: at the `}}` outside of quotes and of nested braces.
// An expression that does not end takes the rest; compiling it reports that.
func expressionEnd(s string) int {
	depth, quote := 0, byte(0)
	for i := 3; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}' && strings.HasPrefix(s[i:], "}}"):
			return i + 2
		}
	}
	return len(s)
}

// variable expands the `${` at the start of s and returns what follows it.
func variable(s string, env func(string) (string, bool)) (value, rest string, err error) {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", "", errors.New("${ is not closed")
	}
	name, fallback, hasDefault := strings.Cut(s[2:end], ":-")
	if !variableName.MatchString(name) {
		return "", "", fmt.Errorf("${%s} is not a variable", cut(s[2:end], 40))
	}
	if strings.Contains(fallback, "${") {
		return "", "", fmt.Errorf("the default of ${%s} holds a variable; defaults do not nest", name)
	}
	value, ok := env(name)
	switch {
	case hasDefault && value == "":
		value = fallback
	case !ok:
		return "", "", errUnset{name}
	}
	return value, s[end+1:], nil
}
