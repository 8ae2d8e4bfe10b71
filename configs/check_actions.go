package configs

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/triggerd/triggerd/expr"
)

// expressions compiles what a field holds as CEL or as a template, and checks the secrets that it names.
func (c *checker) expressions(f field) {
	if kind := f.tag.Get("expr"); kind != "" && strings.TrimSpace(f.v.String()) != "" {
		c.blame(f.path, compileCEL(kind, f.v.String()))
	}
	scope := expr.Action
	switch f.tag.Get("template") {
	case "":
		return
	case "decision":
		scope = expr.Decision
	}
	f.texts(func(s string, at path, _ func(string)) {
		t, err := expr.CompileTemplate(s, scope)
		if err != nil {
			c.blame(at, err)
			return
		}
		for _, name := range t.Secrets() {
			c.secretExists(at, name)
		}
	})
}

func compileCEL(kind, src string) error {
	var err error
	switch kind {
	case "filter":
		_, err = expr.CompileBool(src, expr.Decision)
	case "key":
		if strings.TrimSpace(src) == noThread {
			return nil
		}
		_, err = expr.CompileKey(src, expr.Decision)
	case "request":
		_, err = expr.CompileKey(src, expr.Request)
	default:
		panic("configs: struct tag: no expression of kind " + kind)
	}
	return err
}

// blame reports an error of an expression at its place in the file.
func (c *checker) blame(at path, err error) {
	if err == nil {
		return
	}
	n, _ := c.root.at(at)
	var e *expr.Error
	if !errors.As(err, &e) {
		c.report(at, err.Error(), "")
		return
	}
	line, column := n.position(e.Offset, e.Line, e.Column)
	c.reportAt(n, line, column, at, e.Msg, "")
}

// relTemplate makes a path absolute against the file that names it, unless a template decides where it starts.
func (n *node) relTemplate(s string) string {
	switch {
	case strings.HasPrefix(s, "${{") || filepath.IsAbs(s):
		return s
	case strings.Contains(s, "${{"): // cleaning would change the expressions
		return strings.ReplaceAll(n.doc.dir, "${{", "$${{") + "/" + strings.TrimPrefix(s, "./")
	}
	return strings.ReplaceAll(filepath.Join(n.doc.dir, s), "${{", "$${{")
}

// literal is the text of a template before its first expression, and whether that is all of it.
func literal(s string) (prefix string, whole bool) {
	prefix, _, found := strings.Cut(s, "${{")
	return prefix, !found
}

func envName(s string) error {
	switch {
	case s == "":
		return errors.New("a variable's name is empty")
	case strings.ContainsAny(s, "=\x00 \t\r\n"):
		return errors.New("a variable's name holds no '=', space or NUL")
	case strings.HasPrefix(s, "TRIGGERD_"):
		return errors.New("names that start with TRIGGERD_ are set by triggerd")
	}
	return nil
}

// httpToken reports whether s is a token of RFC 9110, as methods and header names are.
func httpToken(s string) bool {
	for _, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return false
		}
	}
	return s != ""
}

func (c *checker) http(at path, h *HTTP) {
	if h.Method != "" && !httpToken(h.Method) {
		c.report(at.key("method"), "not an HTTP method", "for example POST")
	}
	c.headers(at.key("headers"), h.Headers)
	if !c.known(at.key("url")) || h.URL == "" {
		return
	}
	prefix, whole := literal(h.URL)
	if !whole && prefix == "" {
		return
	}
	lower := strings.ToLower(prefix)
	switch {
	case !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://"):
		c.report(at.key("url"), "wants a URL that starts with http:// or https://", "")
	case whole:
		// The URL is not quoted: it may hold a password.
		if u, err := url.Parse(h.URL); err != nil || u.Hostname() == "" {
			c.report(at.key("url"), "is not a URL", "")
		}
	}
}

func (c *checker) headers(at path, headers map[string]string) {
	for _, k := range sortedNames(headers) {
		if !httpToken(k) {
			c.reportKey(at.key(k), "not a header name", "")
		}
	}
}

func (c *checker) publish(at path, p *Publish, prefix string) {
	c.headers(at.key("headers"), p.Headers)
	here := at.key("subject")
	if !c.known(here) || p.Subject == "" {
		return
	}
	text, whole := literal(p.Subject)
	if err := subject(text, whole, prefix); err != nil {
		c.report(here, err.Error(), "")
	}
}

// subject checks the literal start of a subject. What templates make of the rest is checked when it is sent.
func subject(text string, whole bool, prefix string) error {
	if strings.ContainsAny(text, " \t\r\n\x00") {
		return errors.New("a subject holds no space")
	}
	if strings.ContainsAny(text, "*>") {
		return errors.New("a message is sent to one subject: no * and >")
	}
	if strings.HasPrefix(text, ".") || strings.Contains(text, "..") || whole && strings.HasSuffix(text, ".") {
		return errors.New("a subject has no empty part between dots")
	}
	first, rest, _ := strings.Cut(text, ".")
	if strings.HasPrefix(first, "$") || first == "_INBOX" {
		return errors.New("subjects of the server itself cannot be published to")
	}
	if second, _, cut := strings.Cut(rest, "."); first == prefix && cut && second != "push" && second != "submit" {
		return errors.New("subjects of triggerd itself cannot be published to, except " + prefix + ".push and " + prefix + ".submit")
	}
	return nil
}
