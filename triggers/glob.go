package triggers

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/triggerd/triggerd"
)

// MatchType reports whether an event type fits a glob: tokens are separated by dots, `*` stands for any characters of one token, also
// none, and the token `**` for any number of tokens, also none. Everything else stands for itself. It takes time in proportion to
// the product of both lengths at worst.
func MatchType(glob, typ string) bool {
	if !strings.Contains(glob, "*") {
		return glob == typ
	}
	// The last `**` seen and where its share of the type ends: on a mismatch it takes one token more.
	backGlob, backType := "", ""
	haveBack := false
	restGlob, restType := dotted(glob), dotted(typ)
	for {
		pattern, afterGlob := cut(restGlob)
		if pattern == "**" {
			haveBack, backGlob, backType = true, afterGlob, restType
			restGlob = afterGlob
			continue
		}
		if restGlob == "" && restType == "" {
			return true
		}
		if restGlob != "" && restType != "" {
			if token, afterType := cut(restType); matchToken(pattern, token) {
				restGlob, restType = afterGlob, afterType
				continue
			}
		}
		if !haveBack || backType == "" {
			return false
		}
		_, backType = cut(backType)
		restGlob, restType = backGlob, backType
	}
}

// dotted puts a dot before each token, so that "no token left" and "an empty token left" differ.
func dotted(s string) string { return "." + s }

// cut takes the first token of a dotted string.
func cut(s string) (token, rest string) {
	if s == "" {
		return "", ""
	}
	if i := strings.IndexByte(s[1:], '.'); i >= 0 {
		return s[1 : 1+i], s[1+i:]
	}
	return s[1:], ""
}

// matchToken matches one token, in which `*` stands for any characters.
func matchToken(pattern, token string) bool {
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(token) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == token[t]:
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// ValidGlob reports why a glob is of no use: it is empty or has an empty token, `**` is only a part of a token, it is longer
// than a type can be, or it holds spaces at its ends or control characters.
func ValidGlob(glob string) error {
	switch {
	case glob == "":
		return errors.New("the glob is empty")
	case len(glob) > triggerd.MaxEventType:
		return fmt.Errorf("the glob has %d bytes, an event type has at most %d", len(glob), triggerd.MaxEventType)
	case !utf8.ValidString(glob):
		return errors.New("the glob is not valid UTF-8")
	case strings.TrimSpace(glob) != glob:
		return fmt.Errorf("glob %q: spaces at an end", glob)
	case strings.ContainsFunc(glob, unicode.IsControl):
		return fmt.Errorf("glob %q: control characters", glob)
	}
	for _, token := range strings.Split(glob, ".") {
		if token == "" {
			return fmt.Errorf("glob %q: an empty token (two dots in a row, or one at an end)", glob)
		}
		if token != "**" && strings.Contains(token, "**") {
			return fmt.Errorf("glob %q: ** must stand alone between dots; use * within a token", glob)
		}
	}
	return nil
}
