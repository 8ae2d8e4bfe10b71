package main

import (
	"fmt"
	"regexp"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseEnv reads NAME=value lines as systemd's EnvironmentFile and Docker's --env-file mostly agree on them: blank lines and
// lines that start with # do not count, `export` in front is allowed, and quotes around a whole value are taken off, with \" \\ \n
// understood within double ones. Errors name the line and never show a value, which may be a secret.
func parseEnv(text string) (map[string]string, error) {
	vars := map[string]string{}
	text = strings.TrimPrefix(text, "\uFEFF")
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "export "); ok {
			line = strings.TrimSpace(rest)
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || !envName.MatchString(name) {
			return nil, fmt.Errorf("line %d is not NAME=value", i+1)
		}
		value, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("line %d: the value of %s %w", i+1, name, err)
		}
		vars[name] = value
	}
	return vars, nil
}

func unquote(v string) (string, error) {
	if v == "" || v[0] != '"' && v[0] != '\'' {
		return v, nil
	}
	quote := v[0]
	if len(v) < 2 || v[len(v)-1] != quote {
		return "", fmt.Errorf("has no closing %c", quote)
	}
	inner := v[1 : len(v)-1]
	if quote == '\'' {
		return inner, nil
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(inner), nil
}
