package configs

import (
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/triggerd/triggerd"
)

// socketLimit is the longest path of a unix socket: sun_path has 108 bytes on Linux, the last one a NUL (unix(7)).
const socketLimit = 107

// noThread is written for a thread's key where none is meant.
const noThread = "none"

// defaults fills in what the files leave out and what does not depend on anything else.
func (c *checker) defaults() {
	walk(reflect.ValueOf(c.cfg).Elem(), nil, func(f field) {
		if d := f.tag.Get("default"); d != "" && f.v.IsZero() && !c.given(f.path) {
			f.setDefault(d)
		}
	})
	c.inherit()
}

// dependent makes connections of inline sources and fills in the defaults that depend on other values.
func (c *checker) dependent() {
	c.inlineSources()
	c.natsDefaults()
	c.sourceDefaults()
	c.triggerDefaults()
	c.inheritPools()
}

func (f field) setDefault(s string) {
	switch v := f.v; {
	case v.Kind() == reflect.Pointer: // *bool
		b := s == "true"
		v.Set(reflect.ValueOf(&b))
	case v.Kind() == reflect.String:
		v.SetString(s)
	default:
		v.SetInt(parseBound(v.Type(), s))
	}
}

// inlineSources makes a connection of each trigger's own source. The two share the source, so defaults show in both.
func (c *checker) inlineSources() {
	if c.cfg.Connections == nil {
		c.cfg.Connections = map[string]Connection{}
	}
	for _, name := range sortedNames(c.cfg.Triggers) {
		t := c.cfg.Triggers[name]
		if !t.inline() || c.given(path{"connections", name}) {
			continue
		}
		c.cfg.Connections[name] = Connection{Webhook: t.Webhook, Cron: t.Cron, Push: t.Push, Files: t.Files, RenamedFrom: t.RenamedFrom, RunsOn: t.RunsOn}
		if len(t.Connection) == 0 {
			t.Connection = StringList{name}
			c.cfg.Triggers[name] = t
		}
	}
}

func (t *Trigger) inline() bool {
	return t.Webhook != nil || t.Cron != nil || t.Push != nil || t.Files != nil
}

// inherit copies defaults.triggers to where a trigger says nothing.
func (c *checker) inherit() {
	from := reflect.ValueOf(c.cfg.Defaults.Triggers)
	for _, name := range sortedNames(c.cfg.Triggers) {
		t := c.cfg.Triggers[name]
		v := reflect.ValueOf(&t).Elem()
		for i := range from.NumField() {
			sf := from.Type().Field(i)
			c.copyUnset(v.FieldByName(sf.Name), from.Field(i), path{"triggers", name, yamlKey(sf)})
		}
		c.cfg.Triggers[name] = t
	}
}

func (c *checker) copyUnset(dst, src reflect.Value, at path) {
	if src.Kind() == reflect.Struct {
		for i := range src.NumField() {
			c.copyUnset(dst.Field(i), src.Field(i), at.key(yamlKey(src.Type().Field(i))))
		}
		return
	}
	if !c.given(at) {
		dst.Set(src)
	}
}

func (c *checker) natsDefaults() {
	n := &c.cfg.NATS
	if c.given(path{"nats", "url"}) {
		n.Embedded = Embedded{}
	} else {
		e := &n.Embedded
		if e.Store == "" {
			e.Store = "data"
			if dir, ok := c.o.Env("STATE_DIRECTORY"); ok && dir != "" {
				e.Store, _, _ = strings.Cut(dir, ":") // systemd lists several with colons
			}
		}
		if !c.opaque(path{"nats", "embedded", "store"}) {
			e.Store = absolute(e.Store)
		}
		if e.Sync == "" {
			e.Sync = SyncAlways
			if runtime.GOOS == "linux" {
				e.Sync = SyncGroup
			}
		}
	}
	if c.cfg.Server.Admin.Listen == "" {
		c.cfg.Server.Admin.Listen = "unix:" + c.adminSocket()
	}
}

func (c *checker) opaque(p path) bool {
	n, found := c.root.at(p)
	return found && n.opaque
}

// adminSocket is the default of server.admin.listen: in the store, else below the user's runtime folder under a name made of what is served.
func (c *checker) adminSocket() string {
	id := c.cfg.NATS.Prefix + " " + strings.Join(c.cfg.NATS.URL, " ")
	if store := c.cfg.NATS.Embedded.Store; store != "" {
		if s := filepath.Join(store, "admin.sock"); len(s) <= socketLimit {
			return s
		}
		id = store
	}
	dir, ok := c.o.Env("XDG_RUNTIME_DIR")
	if !ok || dir == "" {
		dir = "/run"
	}
	return filepath.Join(dir, "triggerd", triggerd.HashID(id)+".sock")
}

// sourceDefaults gives schedules their zone. One that counts from a fixed point, or names instants, needs none.
func (c *checker) sourceDefaults() {
	for _, conn := range c.cfg.Connections {
		if conn.Cron == nil {
			continue
		}
		conn.Cron.Schedule = strings.TrimSpace(conn.Cron.Schedule)
		if conn.Cron.Timezone != "" {
			continue
		}
		conn.Cron.Timezone = c.cfg.Defaults.Timezone
		if conn.Cron.Timezone == "" && (strings.HasPrefix(conn.Cron.Schedule, "@every ") || len(conn.Cron.At) > 0) {
			conn.Cron.Timezone = "UTC"
		}
	}
}

func (c *checker) triggerDefaults() {
	for _, name := range sortedNames(c.cfg.Triggers) {
		t := c.cfg.Triggers[name]
		if strings.TrimSpace(t.Thread.Key) == noThread {
			t.Thread.Key = ""
		}
		if t.Overlap == "" && !c.given(path{"triggers", name, "overlap"}) {
			t.Overlap = c.defaultOverlap(t)
		}
		c.cfg.Triggers[name] = t
	}
}

func (c *checker) defaultOverlap(t Trigger) string {
	if t.Thread.Key != "" {
		return OverlapQueue
	}
	for _, name := range t.Connection {
		if c.cfg.Connections[name].Cron == nil {
			return OverlapAllow
		}
	}
	if len(t.Connection) == 0 {
		return OverlapAllow
	}
	return OverlapSkip
}
