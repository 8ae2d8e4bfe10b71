package configs

import (
	"maps"
	"strconv"
	"strings"
)

const labelHint = "use letters, digits, '_' and '-', first a letter or digit, at most 63"

// labels checks names and values of server.labels or runs_on.
func (c *checker) labels(at path, labels map[string]string) {
	if len(labels) > maxLabels {
		c.report(at, strconv.Itoa(len(labels))+" labels, the limit is "+strconv.Itoa(maxLabels), "")
	}
	for _, name := range sortedNames(labels) {
		here := at.key(name)
		if !labelText.MatchString(name) {
			c.reportKey(here, "not a label's name", labelHint)
		}
		if n, _ := c.root.at(here); !n.opaque && !labelText.MatchString(labels[name]) {
			c.report(here, n.shown()+" is not a label's value", labelHint)
		}
	}
}

// inheritPools lets triggers that say nothing run where their connections run. Connections that do not agree are left to the check.
func (c *checker) inheritPools() {
	for name, conn := range c.cfg.Connections {
		if len(conn.RunsOn) == 0 {
			conn.RunsOn = nil // {} means the same as nothing, and must have the same version
			c.cfg.Connections[name] = conn
		}
	}
	for name, t := range c.cfg.Triggers {
		if len(t.RunsOn) == 0 {
			t.RunsOn = nil
		}
		if !c.given(path{"triggers", name, "runs_on"}) && len(t.Connection) > 0 {
			t.RunsOn = maps.Clone(c.cfg.Connections[t.Connection[0]].RunsOn)
		}
		c.cfg.Triggers[name] = t
	}
}

// placement is where a trigger's or connection's runs_on stands; at is nil where nothing says any.
type placement struct {
	at     path
	labels map[string]string
}

// placed finds a connection's runs_on. It reports false where that is not known, or wrong in itself.
func (c *checker) placed(connection string) (placement, bool) {
	conn, exists := c.cfg.Connections[connection]
	if !exists {
		return placement{}, connection == ConnectionTriggerd
	}
	around := path{"connections", connection}
	if !c.given(around) { // an inline source
		around = path{"triggers", connection}
	}
	return c.sound(around.key("runs_on"), conn.RunsOn)
}

func (c *checker) sound(at path, labels map[string]string) (placement, bool) {
	n, found := c.root.at(at)
	if !found {
		return placement{labels: labels}, !n.opaque
	}
	if n.opaque || len(labels) > maxLabels {
		return placement{}, false
	}
	for name, value := range labels {
		if l, _ := c.root.at(at.key(name)); l.opaque || !labelText.MatchString(name) || !labelText.MatchString(value) {
			return placement{}, false
		}
	}
	return placement{at: at, labels: labels}, true
}

// shown says where something runs, with the values as they were written.
func (c *checker) shown(p placement) string {
	if len(p.labels) == 0 {
		return "any daemon"
	}
	var pairs []string
	for _, name := range sortedNames(p.labels) {
		n, _ := c.root.at(p.at.key(name))
		pairs = append(pairs, name+"="+cut(n.raw, 60))
	}
	return strings.Join(pairs, ", ")
}

// pools checks that everything has daemons that may run it, and that one daemon can run what has to be in one.
func (c *checker) pools() {
	scopes := map[string]string{}   // the first trigger of each shared scope
	first := map[string]placement{} // and where it runs
	for _, name := range sortedNames(c.cfg.Triggers) {
		t := c.cfg.Triggers[name]
		p, ok := c.triggerPlaced(name, t)
		if scope := t.Thread.Scope; ok && t.Thread.Key != "" && scope != "trigger" && c.known(path{"triggers", name, "thread", "scope"}) {
			if scopes[scope] == "" {
				scopes[scope], first[scope] = name, p
			} else if Pool(p.labels) != Pool(first[scope].labels) {
				c.scopeClash(name, scopes[scope], p, first[scope])
			}
		}
	}
	if !c.given(path{"nats", "url"}) {
		c.alone()
	}
}

// triggerPlaced finds where a trigger runs, and reports connections that run in different places where it has to say which one it means.
func (c *checker) triggerPlaced(name string, t Trigger) (placement, bool) {
	at := path{"triggers", name}
	if c.opaque(at) {
		return placement{}, false
	}
	if c.given(at.key("runs_on")) {
		return c.sound(at.key("runs_on"), t.RunsOn)
	}
	if len(t.Connection) == 0 || c.opaque(at.key("connection")) {
		return placement{}, false
	}
	p, ok := c.placed(t.Connection[0])
	for i, other := range t.Connection[1:] {
		q, known := c.placed(other)
		ok = ok && known
		if ok && Pool(p.labels) != Pool(q.labels) {
			c.report(at.key("connection").index(i+1), other+" runs on "+c.shown(q)+", "+t.Connection[0]+" on "+c.shown(p),
				"give the trigger a runs_on of its own; {} is any daemon")
			return placement{}, false
		}
	}
	return p, ok
}

// scopeClash reports triggers that share threads and do not run in the same daemons: one thread is run by one daemon.
func (c *checker) scopeClash(name, other string, here, there placement) {
	at := path{"triggers", name, "runs_on"}
	if !c.given(at) {
		at = path{"triggers", name, "thread", "scope"}
	}
	c.report(at, "runs on "+c.shown(here)+", but shares its threads with triggers."+other+", which runs on "+c.shown(there),
		"one thread is run by one daemon: give both the same runs_on")
}

// alone checks what an embedded server's only daemon would never run.
func (c *checker) alone() {
	have, ok := c.sound(path{"server", "labels"}, c.cfg.Server.Labels)
	if !ok {
		return
	}
	check := func(at path, labels map[string]string) {
		if !c.given(at) {
			return
		}
		p, ok := c.sound(at, labels)
		for _, name := range sortedNames(p.labels) {
			if ok && have.labels[name] != p.labels[name] {
				c.report(at.key(name), "no daemon would ever run it: with the embedded NATS there is only this one, and its server.labels do not have this",
					"set server.labels."+name+" to the same")
			}
		}
	}
	for _, name := range sortedNames(c.cfg.Connections) {
		check(path{"connections", name, "runs_on"}, c.cfg.Connections[name].RunsOn)
	}
	for _, name := range sortedNames(c.cfg.Triggers) {
		check(path{"triggers", name, "runs_on"}, c.cfg.Triggers[name].RunsOn)
	}
}
