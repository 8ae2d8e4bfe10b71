package configs

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Connections that exist without being defined.
const (
	ConnectionManual   = "manual"   // what `fire` appends to
	ConnectionTriggerd = "triggerd" // our own events; triggers may name it
)

func (c *checker) connections() {
	at := path{"connections"}
	sourceKeys := kindsOf(reflect.TypeFor[Connection](), "source")
	for _, name := range sortedNames(c.cfg.Connections) {
		here := at.key(name)
		if !c.given(here) { // an inline source
			c.source(path{"triggers", name}, c.cfg.Connections[name])
			continue
		}
		c.names(at, []string{name})
		c.reserved(here, name)
		if c.opaque(here) {
			continue
		}
		c.exactlyOne(here, sourceKeys, "a source")
		c.source(here, c.cfg.Connections[name])
	}
}

func (c *checker) reserved(at path, name string) {
	if name == ConnectionManual || name == ConnectionTriggerd {
		c.reportKey(at, "the name "+name+" is reserved for a built-in connection", "choose another name")
	}
}

// source checks whichever source is set.
func (c *checker) source(at path, conn Connection) {
	if conn.Webhook != nil {
		c.webhook(at.key("webhook"), conn.Webhook)
	}
	if conn.Cron != nil {
		c.cron(at.key("cron"), conn.Cron)
	}
	if conn.Files != nil {
		c.files(at.key("files"), conn.Files)
	}
}

func (c *checker) webhook(at path, w *Webhook) {
	verify := at.key("verify")
	switch w.Verify.Scheme {
	case VerifyBearer:
		if !c.given(verify.key("secrets")) {
			c.report(verify, "scheme bearer needs secrets", "name at least one secret")
		}
	case VerifyNone:
		if c.given(verify.key("secrets")) {
			c.reportKey(verify.key("secrets"), "scheme none checks no secret", "use scheme: bearer, or leave secrets out")
		}
	}
	for i, name := range w.Verify.Secrets {
		c.secretExists(verify.key("secrets").index(i), name)
	}
}

func (c *checker) files(at path, f *Files) {
	for key, globs := range map[string]StringList{"paths": f.Paths, "exclude": f.Exclude} {
		for i, g := range globs {
			if strings.TrimSpace(g) == "" {
				continue
			}
			if !doublestar.ValidatePattern(g) {
				c.report(at.key(key).index(i), "not a glob", "brackets and braces must close; a backslash takes the next character as it is")
			}
		}
	}
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)

// relGlob makes a glob absolute against the file that names it; the file's own folder is no pattern.
func (n *node) relGlob(g string) string {
	if strings.HasPrefix(g, "/") {
		return g
	}
	g = strings.TrimPrefix(g, "./")
	dir := n.doc.dir
	for strings.HasPrefix(g, "../") {
		g, dir = g[3:], filepath.Dir(dir)
	}
	return strings.TrimSuffix(globEscape.Replace(dir), "/") + "/" + g
}
