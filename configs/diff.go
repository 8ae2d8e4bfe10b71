package configs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
)

// Names lists what was added to, removed from and changed in a section, each in order.
type Names struct{ Added, Removed, Changed []string }

// Empty reports whether nothing changed.
func (n Names) Empty() bool { return len(n.Added)+len(n.Removed)+len(n.Changed) == 0 }

// Change is what differs between two configurations by their meaning: comments, order, formatting and written-out defaults do not count.
type Change struct {
	Connections Names
	Triggers    Names
	Secrets     Names
	Settings    []string // other top-level sections that changed: server, nats, history
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool {
	return c.Connections.Empty() && c.Triggers.Empty() && c.Secrets.Empty() && len(c.Settings) == 0
}

// Diff compares two checked configurations; nil is an empty one. A trigger does not change with its inline source: the connection does.
// The section defaults has no place of its own here, because it shows in the triggers and connections that it reaches.
// server.labels do not count: they tell one daemon from another that has the same configuration.
func Diff(old, new *Config) Change {
	if old == nil {
		old = &Config{}
	}
	if new == nil {
		new = &Config{}
	}
	c := Change{
		Connections: diffNames(old.Connections, new.Connections),
		Triggers:    diffNames(rulesOf(old), rulesOf(new)),
		Secrets:     diffNames(old.Secrets, new.Secrets),
	}
	for section, pair := range map[string][2]any{
		"server":  {unlabelled(old.Server), unlabelled(new.Server)},
		"nats":    {old.NATS, new.NATS},
		"history": {old.History, new.History},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			c.Settings = append(c.Settings, section)
		}
	}
	slices.Sort(c.Settings)
	return c
}

func unlabelled(s Server) Server {
	s.Labels = nil
	return s
}

// rulesOf are the triggers without their inline sources.
func rulesOf(c *Config) map[string]Trigger {
	out := make(map[string]Trigger, len(c.Triggers))
	for name, t := range c.Triggers {
		t.Webhook, t.Cron, t.Push, t.Files = nil, nil, nil, nil
		out[name] = t
	}
	return out
}

func diffNames[T any](old, new map[string]T) Names {
	var n Names
	for _, name := range sortedNames(new) {
		was, ok := old[name]
		switch {
		case !ok:
			n.Added = append(n.Added, name)
		case !reflect.DeepEqual(was, new[name]):
			n.Changed = append(n.Changed, name)
		}
	}
	for _, name := range sortedNames(old) {
		if _, ok := new[name]; !ok {
			n.Removed = append(n.Removed, name)
		}
	}
	return n
}

// Version names what decides about events and turns: 12 hexadecimal digits that differ when a connection or a trigger means something else.
// It holds for one version of the program. Nothing of the section server counts, so daemons with other labels have the same version.
func (c *Config) Version() string {
	doc, err := json.Marshal(map[string]any{"connections": c.Connections, "triggers": rulesOf(c)})
	if err != nil {
		panic("configs: " + err.Error()) // plain values only: a test encodes them all
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:6])
}
