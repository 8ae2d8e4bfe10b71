package configs

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

func (c *checker) triggers() {
	at := path{"triggers"}
	sourceKeys := append([]string{"connection"}, kindsOf(reflect.TypeFor[Trigger](), "source")...)
	actionKeys := kindsOf(reflect.TypeFor[Run](), "action")
	for _, name := range sortedNames(c.cfg.Triggers) {
		t, here := c.cfg.Triggers[name], at.key(name)
		c.names(at, []string{name})
		if c.opaque(here) {
			continue
		}
		c.exactlyOne(here, sourceKeys, "a connection or a source")
		c.clash(here, name, &t)
		c.named(here.key("connection"), t.Connection)
		c.events(here.key("event"), t.Event)
		if thread := here.key("thread"); c.given(thread.key("scope")) && !c.given(thread.key("key")) {
			c.report(thread, "scope without a key", "")
		}
		c.retry(here.key("retry"), t.Retry)
		if c.given(here.key("run")) && !c.opaque(here.key("run")) {
			c.exactlyOne(here.key("run"), actionKeys, "an action")
			c.action(here.key("run"), t.Run)
		}
	}
	c.retry(path{"defaults", "triggers", "retry"}, c.cfg.Defaults.Triggers.Retry)
}

// clash reports an inline source whose name is a connection's.
func (c *checker) clash(at path, name string, t *Trigger) {
	if !t.inline() {
		return
	}
	c.reserved(at, name)
	if n, found := c.root.at(path{"connections", name}); found {
		c.reportKey(at, "the connection of its inline source would be named like connections."+name+" at "+
			n.doc.file+":"+strconv.Itoa(n.line), "rename the trigger, or name the connection with connection: "+name)
	}
}

// named checks the connections that a trigger names.
func (c *checker) named(at path, names StringList) {
	if !c.known(at) {
		return
	}
	seen := map[string]bool{}
	for i, name := range names {
		here := at.index(i)
		_, known := c.cfg.Connections[name]
		switch {
		case seen[name]:
			c.report(here, strconv.Quote(name)+" is named twice", "")
		case name == ConnectionManual:
			c.report(here, "manual cannot be named", "fire reaches every trigger without it")
		case !known && name != ConnectionTriggerd && name != "":
			c.report(here, "there is no connection "+strconv.Quote(cut(name, 60)), didYouMean(name, append(sortedNames(c.cfg.Connections), ConnectionTriggerd)))
		}
		seen[name] = true
	}
}

func (c *checker) events(at path, globs StringList) {
	for i, g := range globs {
		if err := validGlob(g); err != nil && g != "" {
			c.report(at.index(i), err.Error(), "for example order.created, order.*, **")
		}
	}
}

// validGlob checks a glob over dotted event types: `*` stands within one token, `**` is a token of its own.
func validGlob(g string) error {
	if strings.ContainsAny(g, " \t\r\n") {
		return errors.New("event type holds a space")
	}
	for token := range strings.SplitSeq(g, ".") {
		switch {
		case token == "":
			return errors.New("event type has an empty part between dots")
		case token != "**" && strings.Contains(token, "**"):
			return errors.New("** must stand alone between dots")
		}
	}
	return nil
}

func (c *checker) retry(at path, r Retry) {
	backoff := at.key("backoff")
	lo, hi := backoff.key("initial"), backoff.key("max")
	if (c.given(lo) || c.given(hi)) && !c.opaque(lo) && !c.opaque(hi) && r.Backoff.Max < r.Backoff.Initial {
		c.report(backoff, "max "+r.Backoff.Max.String()+" is shorter than initial "+r.Backoff.Initial.String(), "")
	}
}

func (c *checker) action(at path, r Run) {
	if r.Exec != nil {
		c.exec(at.key("exec"), r.Exec)
	}
	if r.HTTP != nil {
		c.http(at.key("http"), r.HTTP)
	}
	if r.Publish != nil {
		c.publish(at.key("publish"), r.Publish, c.cfg.NATS.Prefix)
	}
}

func (c *checker) exec(at path, e *Exec) {
	if c.known(at.key("command")) && len(e.Command) > 0 {
		here := at.key("command").index(0)
		n, _ := c.root.at(here)
		switch cmd := e.Command[0]; {
		case strings.TrimSpace(cmd) == "":
			c.report(here, "the program is empty", "")
		case strings.Contains(cmd, "/"):
			e.Command[0] = n.relTemplate(cmd)
		}
	}
	for _, k := range sortedNames(e.Env) {
		if err := envName(k); err != nil {
			c.reportKey(at.key("env").key(k), err.Error(), "")
		}
	}
	codes := at.key("exit_codes")
	for i, code := range e.ExitCodes.Dead {
		if slices.Contains(e.ExitCodes.Retry, code) {
			c.report(codes.key("dead").index(i), "exit code "+strconv.Itoa(code)+" is in retry as well", "")
		}
	}
}
