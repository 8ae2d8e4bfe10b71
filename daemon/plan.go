package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/supervise"
	"github.com/triggerd/triggerd/triggers"
	"github.com/triggerd/triggerd/turns"
	"github.com/triggerd/triggerd/turns/action"
)

// plan is a configuration made ready to run. Building one touches nothing that is live, so a bad configuration changes nothing.
type plan struct {
	config  *configs.Config
	specs   map[string]*turns.Spec           // by trigger key
	defs    map[string][]triggers.Definition // by connection key: what decides its events
	version map[string]string                // by connection key: hash of defs
	nameOf  map[string]string                // connection key -> present name
	keyOf   map[string]string                // connection name -> key
	trigger map[string]string                // trigger name -> key
	// pauseAfter are the triggers that are paused when their turns fail, by key: after so many in a row.
	pauseAfter map[string]int
}

// Reserved connections.
const (
	manualConnection = triggers.ManualConnection
	ownConnection    = triggers.OwnConnection
)

func (d *Daemon) build(cfg *configs.Config) (*plan, error) {
	p := &plan{
		config: cfg, specs: map[string]*turns.Spec{}, defs: map[string][]triggers.Definition{}, version: map[string]string{},
		nameOf: map[string]string{manualConnection: manualConnection, ownConnection: ownConnection},
		keyOf:  map[string]string{manualConnection: manualConnection, ownConnection: ownConnection}, trigger: map[string]string{}, pauseAfter: map[string]int{},
	}
	for name, c := range cfg.Connections {
		key := firstName(name, c.RenamedFrom)
		p.nameOf[key], p.keyOf[name] = name, key
	}
	var errs []error
	for _, name := range sortedKeys(cfg.Triggers) {
		t := cfg.Triggers[name]
		key := firstName(name, t.RenamedFrom)
		p.trigger[name] = key
		if t.PauseOnFailure > 0 {
			p.pauseAfter[key] = t.PauseOnFailure
		}
		spec, err := d.spec(cfg, key, name, &t)
		if err != nil {
			errs = append(errs, fmt.Errorf("triggers.%s: %w", name, err))
			continue
		}
		p.specs[key] = spec
		def := definition(key, name, &t, p.keyOf)
		for _, c := range def.Connections {
			p.defs[c] = append(p.defs[c], def)
		}
		p.defs[manualConnection] = append(p.defs[manualConnection], def)
	}
	if len(cfg.NATS.URL) > 0 {
		place(cfg, p.specs)
	}
	for c, defs := range p.defs {
		if _, err := triggers.Compile(defs); err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", c, err))
		}
		p.version[c] = hashOf(defs)
	}
	for key := range p.nameOf {
		if p.version[key] == "" {
			p.version[key] = hashOf(p.defs[key])
		}
	}
	return p, errors.Join(errs...)
}

// firstName is the name that keys use.
func firstName(name, renamedFrom string) string {
	if renamedFrom != "" {
		return renamedFrom
	}
	return name
}

func definition(key, name string, t *configs.Trigger, keyOf map[string]string) triggers.Definition {
	def := triggers.Definition{
		Name: name, Key: key, Events: t.Event, Filter: t.Filter, Thread: t.Thread.Key, Scope: t.Thread.Scope, Input: t.Input,
		Overlap: t.Overlap, Disabled: t.Enabled != nil && !*t.Enabled,
	}
	for _, c := range t.Connection {
		def.Connections = append(def.Connections, keyOf[c])
	}
	sort.Strings(def.Connections)
	return def
}

func (d *Daemon) spec(cfg *configs.Config, key, name string, t *configs.Trigger) (*turns.Spec, error) {
	act, err := d.action(cfg, &t.Run)
	if err != nil {
		return nil, err
	}
	s := &turns.Spec{
		Key: key, Name: name, Action: act, Hash: hashOf(t), Overlap: t.Overlap, Timeout: time.Duration(t.Timeout), OnCrash: t.OnCrash,
		SkipPaused: t.WhilePaused == "skip", Pool: cfg.TriggerPool(name),
		Retry: turns.RetryPolicy{
			Attempts: t.Retry.Attempts, Initial: time.Duration(t.Retry.Backoff.Initial), Max: time.Duration(t.Retry.Backoff.Max),
			MaxElapsed: time.Duration(t.Retry.MaxElapsed),
		},
	}
	for _, c := range t.Concurrency {
		if s.Limit == 0 || c.Limit < s.Limit {
			s.Limit = c.Limit
		}
	}
	return s, nil
}

// place keeps the turns that are bounded together in one partition, because a limit holds within one: those of a trigger with a limit, and of all triggers
// that share threads with it.
func place(cfg *configs.Config, specs map[string]*turns.Spec) {
	scopes := map[string]bool{}
	for name, t := range cfg.Triggers {
		if s := specs[firstName(name, t.RenamedFrom)]; s != nil && s.Limit > 0 {
			s.Place = "trigger " + s.Key
			scopes[t.Thread.Scope] = true
		}
	}
	for name, t := range cfg.Triggers {
		if s := specs[firstName(name, t.RenamedFrom)]; s != nil && t.Thread.Scope != "" && t.Thread.Scope != triggers.ScopeTrigger && scopes[t.Thread.Scope] {
			s.Place = "scope " + t.Thread.Scope
		}
	}
}

func (d *Daemon) action(cfg *configs.Config, r *configs.Run) (turns.Action, error) {
	secret := func(name string) (string, error) { return d.secrets.Load().Get(name) }
	var beat time.Duration
	var alive func() bool
	if len(cfg.NATS.URL) > 0 {
		// What an action does must have ended when another daemon may begin, also while this one is frozen.
		beat, alive = hold, d.alive
	}
	switch {
	case r.Exec != nil:
		x := r.Exec
		return action.NewExec(action.ExecOptions{
			Command: x.Command, Dir: x.Dir, Env: x.Env, Stdin: x.Stdin, RetryCodes: x.ExitCodes.Retry, DeadCodes: x.ExitCodes.Dead,
			KillAfter: time.Duration(x.KillAfter), MaxOutput: int64(x.MaxOutput), Secrets: secret, Redact: d.redactBytes,
			Supervisor: append(supervisor(), supervise.Argument), Beat: beat, Alive: alive,
		})
	case r.HTTP != nil:
		h := r.HTTP
		return action.NewHTTP(action.HTTPOptions{
			Alive:  alive,
			Method: h.Method, URL: h.URL, Headers: h.Headers, Body: h.Body, RetryStatus: h.RetryStatus, AllowPrivate: h.AllowPrivate,
			MaxResponse: int64(h.MaxResponse), Secrets: secret, Redact: d.redactBytes, UserAgent: "triggerd/" + d.opts.Version,
		})
	case r.Publish != nil:
		b := r.Publish
		return action.NewPublish(action.PublishOptions{
			Subject: b.Subject, Data: b.Data, Headers: b.Headers, JetStream: b.JetStream, Secrets: secret, Redact: d.redactBytes,
			Conn: publisher{d}, Reserved: reservedSubjects(cfg.NATS.Prefix),
		})
	}
	return nil, errors.New("run names no action")
}

// reservedSubjects are our own streams: a rendered subject must not reach into them.
func reservedSubjects(prefix string) []string {
	own := []string{"event", "cursor", "owner", "turn", "thread", "daemon"}
	for i, s := range own {
		own[i] = prefix + "." + s
	}
	return own
}

func (d *Daemon) redactBytes(b []byte) []byte { return d.redact.Bytes(b) }

func (d *Daemon) engineOptions(cfg *configs.Config, epoch uint64) turns.Options {
	var alive func() bool
	if d.bus.External() {
		alive = d.alive
	}
	return turns.Options{
		Alive: alive, Shared: d.bus.External(), Bus: d.bus, Daemon: d.id, Epoch: epoch, Concurrency: cfg.Server.Concurrency, Retention: time.Duration(cfg.History.Turns),
		Names: d.connectionName, OnFinal: d.onFinal, WaitGone: action.WaitGone, ToJSON: expr.JSON,
		FromJSON: func(b []byte) any { return expr.DecodePayload("application/json", b) }, Redact: d.redactBytes, Log: d.log,
	}
}

// actionKind is the action's name in lists.
func actionKind(r *configs.Run) string {
	switch {
	case r.Exec != nil:
		return "exec"
	case r.HTTP != nil:
		return "http"
	}
	return "publish"
}

// hashOf names a value by its content: 12 hex digits are plenty for the versions of one installation.
func hashOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("configuration values are plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
