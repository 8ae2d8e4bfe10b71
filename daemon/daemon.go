// Package daemon wires the rest together: configuration, bus, sources, inbox, triggers, turns and the admin API. It is the only package
// that knows them all.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/inbox"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/webhook"
	"github.com/triggerd/triggerd/turns"
)

// Options configure a [Daemon].
type Options struct {
	Config  configs.Options // where the configuration is; read again at each reload
	Log     zerolog.Logger
	LogTo   io.Writer // where Log writes, so that secrets can be taken out on the way; nil = Log as it is
	Version string    // of this build
}

// Daemon is one running triggerd. Use [New], then [Daemon.Run].
type Daemon struct {
	opts    Options
	log     zerolog.Logger
	id      string
	host    string
	started time.Time
	secrets atomic.Pointer[configs.Secrets]
	former  formerSecrets // values of secrets that a reload replaced
	redact  *configs.Redactor
	metrics *metrics
	flusher flusher

	// Set by Run before anything else runs, not changed afterwards.
	bus      *bus.Bus
	share    *share        // nil with an embedded store
	reader   *turns.Engine // runs nothing; on an external NATS it opens turns
	appender *inbox.Appender
	hooks    *webhook.Router
	fatal    chan error

	reloading sync.RWMutex // one reload at a time, and none while something is started by the present plan
	unapplied bool         // the last reload could not start everything; guarded by reloading
	plan      atomic.Pointer[plan]
	refused   atomic.Pointer[string] // why the last reload was refused; nil = it was not
	ready     atomic.Bool
	term      atomic.Pointer[term] // nil on an external NATS

	versions versions

	connMu sync.Mutex
	conns  map[string]*connection     // by key; those that this daemon owns
	status map[string]*sources.Status // by key

	past pastStats
}

// New reads and checks the configuration; nothing is opened or listened on before [Daemon.Run].
// An invalid configuration is a *[configs.Errors] with all its problems.
func New(o Options) (*Daemon, error) {
	d := &Daemon{
		opts: o, id: ulid.Make().String(), metrics: newMetrics(), fatal: make(chan error, 1),
		conns: map[string]*connection{}, status: map[string]*sources.Status{}, hooks: webhook.NewRouter(),
	}
	d.host, _ = os.Hostname()
	d.started = time.Now().UTC()
	d.redact = configs.NewRedactor(d.secretValues)
	d.log = o.Log
	if o.LogTo != nil {
		d.log = o.Log.Output(redacting{d.redact, o.LogTo})
	}
	cfg, err := configs.Load(o.Config)
	if err != nil {
		return nil, err
	}
	d.secrets.Store(configs.NewSecrets(cfg.Secrets))
	p, err := d.build(cfg)
	if err != nil {
		return nil, err
	}
	d.plan.Store(p)
	return d, nil
}

// redacting takes secrets out of each log line.
type redacting struct {
	r  *configs.Redactor
	to io.Writer
}

func (w redacting) Write(p []byte) (int, error) {
	if _, err := w.to.Write(w.r.Bytes(append([]byte(nil), p...))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Run opens the store, goes on with what an earlier run left, and serves until ctx ends or the daemon cannot go on; then it drains and closes.
// It blocks. A nil error means that ctx ended and everything was put away.
//
// On an external NATS the daemons there share the work; see share.
//
// It is one straight function on purpose: each step's teardown is registered right after the step, and runs in reverse order.
func (d *Daemon) Run(ctx context.Context) (err error) {
	began := time.Now()
	cfg := d.plan.Load().config
	var undo teardown
	defer func() { err = errors.Join(err, undo.run(d.log)) }()

	d.reloading.Lock()
	unlock := sync.OnceFunc(d.reloading.Unlock)
	defer unlock()
	where, err := d.busOptions(cfg)
	if err != nil {
		return err
	}
	if d.bus, err = bus.Open(ctx, where); err != nil {
		return err
	}
	undo.add("store", func() error { d.bus.Close(); return nil })
	d.appender = inbox.NewAppender(d.bus)
	d.reader = turns.New(d.engineOptions(cfg, 0))
	d.reader.SetTriggers(d.plan.Load().specs)
	if d.bus.External() {
		unlock()
		d.startShare(ctx, &undo)
		d.reloading.Lock()
		unlock = sync.OnceFunc(d.reloading.Unlock)
	} else {
		t, err := d.startTerm(ctx)
		if err != nil {
			return err
		}
		undo.add("ownership", func() error { return d.stopTerm(t) })
	}
	if err := d.routeHooks(d.plan.Load()); err != nil {
		return err
	}
	stopHTTP, err := d.listen(cfg)
	if err != nil {
		return err
	}
	undo.add("listeners", stopHTTP)
	watch, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go d.watchConfig(watch)
	unlock()
	d.ready.Store(true)
	undo.add("readiness", func() error { d.ready.Store(false); return nil })
	d.announce(ctx, "daemon.started", d.id, nil, startedPayload{Daemon: d.id, Version: d.opts.Version}, 0)
	ready := d.log.Info().Str("version", d.opts.Version).Str("public", cfg.Server.Listen).Int("connections", len(cfg.Connections)).
		Int("triggers", len(cfg.Triggers)).Dur("took", time.Since(began))
	if t := d.term.Load(); t != nil {
		ready = ready.Int("unfinished_turns", t.found.Unfinished).Int("cut_short", t.found.CutShort)
	} else {
		ready = ready.Str("daemon", d.id)
	}
	ready.Msg("triggerd is ready")
	select {
	case <-ctx.Done():
		d.log.Info().Msg("stopping: no new events, running turns may end")
		return nil
	case err := <-d.fatal:
		return err
	}
}

// startPatience is how long a start waits for its part of the work: until then requests could be refused that will be taken in a moment.
const startPatience = 5 * time.Second

// startShare takes part in the work of all daemons on this NATS.
func (d *Daemon) startShare(ctx context.Context, undo *teardown) {
	cfg := d.plan.Load().config
	d.share = d.newShare(member{Daemon: d.id, Version: d.opts.Version, Started: time.Now().UTC(), Labels: cfg.Server.Labels})
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.share.run(life) }()
	undo.add("ownership", func() error { stop(); return <-done })
	undo.add("requests of other daemons", d.answer())
	select {
	case <-d.share.settled:
	case <-ctx.Done():
	case <-time.After(startPatience):
	}
}

// fail ends Run when something cannot go on that has nothing to do with ownership. Only the first reason counts.
func (d *Daemon) fail(err error) {
	if err == nil {
		return
	}
	select {
	case d.fatal <- err:
	default:
	}
}

func (d *Daemon) busOptions(cfg *configs.Config) (bus.Options, error) {
	o := bus.Options{Prefix: cfg.NATS.Prefix, Replicas: cfg.NATS.Replicas, Domain: cfg.NATS.Domain, Log: d.log}
	if len(cfg.NATS.URL) == 0 {
		e := cfg.NATS.Embedded
		o.Embedded = &bus.EmbeddedOptions{
			Store: e.Store, Sync: e.Sync, SyncInterval: time.Duration(e.SyncInterval), Listen: e.Listen,
			MaxStore: int64(e.MaxStore), MaxPayload: int64(e.MaxPayload), Reserve: int64(e.Reserve),
		}
		if e.Sync == configs.SyncInterval {
			d.log.Warn().Dur("sync_interval", time.Duration(e.SyncInterval)).
				Msg("nats.embedded.sync is interval: a power loss may lose what was accepted since the last sync; a crash of the daemon loses nothing")
		}
		return o, nil
	}
	x := &bus.ExternalOptions{URLs: cfg.NATS.URL, Creds: cfg.NATS.Creds, NKey: cfg.NATS.NKey, CA: cfg.NATS.TLS.CA, Cert: cfg.NATS.TLS.Cert, Key: cfg.NATS.TLS.Key}
	if cfg.NATS.Token != "" {
		token, err := d.secrets.Load().Expand(cfg.NATS.Token)
		if err != nil {
			return o, fmt.Errorf("read nats.token: %w", err)
		}
		x.Token = token
	}
	o.External = x
	return o, nil
}

// teardown closes what was opened, in reverse order.
type teardown struct {
	steps []struct {
		name string
		f    func() error
	}
}

func (t *teardown) add(name string, f func() error) {
	t.steps = append(t.steps, struct {
		name string
		f    func() error
	}{name, f})
}

func (t *teardown) run(log zerolog.Logger) error {
	var errs []error
	for i := len(t.steps) - 1; i >= 0; i-- {
		began := time.Now()
		if err := t.steps[i].f(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %s: %w", t.steps[i].name, err))
		}
		if took := time.Since(began); took > time.Second {
			log.Debug().Str("step", t.steps[i].name).Dur("took", took).Msg("slow to close")
		}
	}
	return errors.Join(errs...)
}

// supervisor is what exec actions start to watch over their command: this very binary, even if its file was replaced meanwhile.
func supervisor() []string {
	if exe, err := os.Readlink("/proc/self/exe"); err == nil && exe != "" {
		return []string{"/proc/self/exe"}
	}
	exe, err := os.Executable()
	if err != nil {
		return []string{os.Args[0]}
	}
	return []string{exe}
}

// connectionName is a connection's present name, or the key when it is configured no more.
func (d *Daemon) connectionName(key string) string {
	if name, ok := d.plan.Load().nameOf[key]; ok {
		return name
	}
	return key
}

var errNotReady = fmt.Errorf("%w: the daemon is starting", triggerd.ErrUnavailable)
