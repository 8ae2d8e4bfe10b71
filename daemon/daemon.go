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
	secrets atomic.Pointer[configs.Secrets]
	former  formerSecrets // values of secrets that a reload replaced
	redact  *configs.Redactor
	metrics *metrics
	flusher flusher

	// Set by Run before anything else runs, not changed afterwards.
	bus       *bus.Bus
	members   *members
	candidate *lease        // of this daemon, whether it owns or waits
	reader    *turns.Engine // runs nothing
	appender  *inbox.Appender
	hooks     *webhook.Router
	fatal     chan error

	reloading sync.Mutex // one reload at a time; also held while starting and stopping
	unapplied bool       // the last reload could not start everything; guarded by reloading
	plan      atomic.Pointer[plan]
	refused   atomic.Pointer[string] // why the last reload was refused; nil = it was not
	ready     atomic.Bool
	term      atomic.Pointer[term] // nil on a standby

	versions versions

	connMu sync.Mutex
	conns  map[string]*connection     // by key; those that this daemon owns
	status map[string]*sources.Status // by key
}

// New reads and checks the configuration; nothing is opened or listened on before [Daemon.Run].
// An invalid configuration is a *[configs.Errors] with all its problems.
func New(o Options) (*Daemon, error) {
	d := &Daemon{
		opts: o, id: ulid.Make().String(), metrics: newMetrics(), fatal: make(chan error, 1),
		conns: map[string]*connection{}, status: map[string]*sources.Status{}, hooks: webhook.NewRouter(),
	}
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
// On an external NATS one daemon owns the work. The others are standbys: they take webhooks and answer questions, and one of them takes over when
// the owner stops, dies, freezes or is cut off; an owner that comes back from that is a standby.
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
	d.candidate = newLease(d.bus, d.id, func() int { return d.plan.Load().config.Generation }, d.log)
	d.startMembers(ctx, &undo)

	var t *term
	owned, err := d.candidate.try(ctx)
	if err != nil && !d.bus.External() {
		return err
	}
	if err != nil {
		d.log.Warn().Err(err).Msg("the lease cannot be read yet: starting as a standby")
	}
	undo.add("ownership", func() error {
		if t == nil {
			return nil
		}
		return d.stopTerm(t)
	})
	if owned {
		t, err = d.startTerm(ctx, d.candidate)
		if err != nil && !(d.bus.External() && errors.Is(err, triggerd.ErrUnavailable)) {
			return err
		}
		if err != nil {
			d.log.Warn().Err(err).Msg("starting as a standby, because the store does not answer")
			t = nil
		}
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
	if t != nil {
		ready = ready.Int("unfinished_turns", t.found.Unfinished).Int("cut_short", t.found.CutShort)
	} else if o := d.candidate.holder.Load(); o != nil {
		ready = ready.Str("standby_of", o.Daemon).Str("host", o.Host)
	}
	ready.Msg("triggerd is ready")
	return d.own(ctx, &t)
}

// own takes over whenever the ownership is free, and gives way when it is lost. It returns nil when ctx ends.
func (d *Daemon) own(ctx context.Context, t **term) error {
	for {
		if *t == nil {
			if err := d.await(ctx, t); err != nil || ctx.Err() != nil {
				return err
			}
			continue // it may not have worked
		}
		select {
		case <-ctx.Done():
			d.log.Info().Msg("stopping: no new events, running turns may end")
			return nil
		case err := <-d.fatal:
			return err
		case err := <-(*t).ended:
			if !d.bus.External() || !errors.Is(err, triggerd.ErrFenced) {
				return err
			}
			d.log.Warn().Err(err).Msg("lost the ownership: this daemon drops its turns and is a standby now")
			d.metrics.lost.Inc()
			d.reloading.Lock()
			if err := d.stopTerm(*t); err != nil {
				d.log.Warn().Err(err).Msg("giving way")
			}
			*t = nil
			d.reloading.Unlock()
		}
	}
}

// await blocks until the ownership is ours, and starts the term. A nil error without a term means that ctx has ended, or that this has to be tried again.
func (d *Daemon) await(ctx context.Context, t **term) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	won := make(chan error, 1)
	go func() { won <- d.candidate.await(waiting) }()
	select {
	case err := <-d.fatal:
		stop()
		if <-won == nil {
			err = errors.Join(err, d.candidate.release())
		}
		return err
	case err := <-won:
		if ctx.Err() != nil {
			if err == nil {
				return d.candidate.release()
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	began := time.Now()
	d.reloading.Lock()
	defer d.reloading.Unlock()
	next, err := d.startTerm(ctx, d.candidate)
	switch {
	case err == nil:
		*t = next
		d.metrics.takeovers.Inc()
		d.log.Info().Uint64("epoch", next.lease.epoch).Int("unfinished_turns", next.found.Unfinished).Int("cut_short", next.found.CutShort).
			Dur("took", time.Since(began)).Msg("took over the ownership")
	case ctx.Err() != nil:
		return nil
	default:
		d.log.Warn().Err(err).Msg("taking over failed; trying again")
		bus.Pause(ctx, leaseEvery)
	}
	return nil
}

// startMembers makes this daemon known to the others, and the others to it.
func (d *Daemon) startMembers(ctx context.Context, undo *teardown) {
	d.members = newMembers(d.bus, member{
		Daemon: d.id, Host: d.candidate.owner.Host, PID: os.Getpid(), Version: d.opts.Version, Started: time.Now().UTC(),
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.members.run(ctx, func() bool { return d.term.Load() != nil })
	}()
	undo.add("members", func() error { stop(); <-done; return nil })
	select {
	case <-d.members.listed: // so that a daemon that is alone knows it from the start
	case <-done: // embedded
	case <-time.After(memberEvery):
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
