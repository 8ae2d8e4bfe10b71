package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
)

// Reload reads the configuration again and makes it live: unchanged connections keep running, positions and running turns stay (P22).
// A configuration with problems changes nothing; the error has them all and wraps [console.ErrInvalidConfig]. Other daemons on this NATS are told to read
// theirs again. Safe to call at any time;
// before Run has started everything it returns [triggerd.ErrUnavailable].
func (d *Daemon) Reload(ctx context.Context) (console.ReloadResult, error) {
	res, err := d.reload(ctx)
	if d.share != nil && !errors.Is(err, errNotReady) {
		d.share.tellReload(ctx) // each daemon has its own files
	}
	return res, err
}

func (d *Daemon) reload(ctx context.Context) (console.ReloadResult, error) {
	if !d.ready.Load() {
		return console.ReloadResult{}, errNotReady
	}
	d.reloading.Lock()
	defer d.reloading.Unlock()
	old := d.plan.Load()
	cfg, err := configs.Load(d.opts.Config)
	if err != nil {
		return console.ReloadResult{}, d.refuse(fmt.Errorf("%w: %w", console.ErrInvalidConfig, err))
	}
	diff := configs.Diff(old.config, cfg)
	if !maps.Equal(old.config.Server.Labels, cfg.Server.Labels) { // no part of the difference: see Diff
		d.log.Warn().Str("section", "server.labels").Msg("a change of this section takes effect at the next start")
	}
	if cfg.Generation < old.config.Generation && d.bus.External() {
		return console.ReloadResult{}, d.refuse(fmt.Errorf("%w: generation %d is older than %d, which is in force", console.ErrInvalidConfig, cfg.Generation, old.config.Generation))
	}
	if diff.Empty() && !d.unapplied && cfg.Generation == old.config.Generation {
		d.refused.Store(nil)
		return console.ReloadResult{Version: cfg.Version(), Connections: []string{}, Triggers: []string{}}, nil
	}
	p, err := d.build(cfg)
	if err != nil {
		return console.ReloadResult{}, d.refuse(fmt.Errorf("%w: %w", console.ErrInvalidConfig, err))
	}
	for _, s := range diff.Settings {
		d.log.Warn().Str("section", s).Msg("a change of this section takes effect at the next start")
	}
	d.retireSecrets(cfg)
	d.plan.Store(p)
	err = d.switchTo(ctx, old, p)
	d.unapplied = err != nil
	if err != nil {
		// The configuration itself is good; what could not be started yet is tried again at the next reload, changed file or not.
		return console.ReloadResult{}, d.refuse(err)
	}
	d.refused.Store(nil)
	return console.ReloadResult{
		Changed: true, Connections: marks(diff.Connections), Triggers: marks(diff.Triggers), Version: cfg.Version(),
	}, nil
}

// switchTo makes a plan live after old. On an external NATS that is what this daemon owns, and its webhooks; the rest is other daemons'.
func (d *Daemon) switchTo(ctx context.Context, old, p *plan) error {
	defer closeActions(old)
	d.reader.SetTriggers(p.specs)
	for _, e := range d.engines() {
		e.SetTriggers(p.specs)
	}
	t := d.term.Load()
	if t == nil {
		return errors.Join(d.share.configure(ctx), d.applyOwned(ctx, p), d.routeHooks(p))
	}
	live := old
	if d.unapplied {
		live = nil // nobody knows how far the last one came
	}
	err := errors.Join(d.apply(ctx, t.owner, live, p), t.engine.ReleaseHeld(ctx))
	return errors.Join(err, d.routeHooks(p)) // a new webhook is open once its events have a configuration that decides them
}

// closeActions lets go of what a plan's actions keep open; attempts under way end undisturbed.
func closeActions(p *plan) {
	for _, s := range p.specs {
		if c, ok := s.Action.(io.Closer); ok {
			_ = c.Close()
		}
	}
}

// retireSecrets switches to the new secrets; values of the old ones are still taken out of logs and results, since running turns hold them.
func (d *Daemon) retireSecrets(cfg *configs.Config) {
	before := d.secrets.Load()
	d.secrets.Store(configs.NewSecrets(cfg.Secrets))
	former := d.former.Load()
	values := before.Values()
	if former != nil {
		values = append(values, *former...)
	}
	values = values[:min(len(values), 1000)]
	d.former.Store(&values)
}

// formerSecrets is what retireSecrets keeps.
type formerSecrets = atomic.Pointer[[]string]

func (d *Daemon) secretValues() []string {
	values := d.secrets.Load().Values()
	if former := d.former.Load(); former != nil {
		values = append(values, *former...)
	}
	return values
}

func (d *Daemon) refuse(err error) error {
	why := err.Error()
	d.refused.Store(&why)
	d.metrics.reloadFailed()
	return err
}

func marks(n configs.Names) []string {
	out := []string{}
	for _, m := range []struct {
		mark  string
		names []string
	}{{"+", n.Added}, {"-", n.Removed}, {"~", n.Changed}} {
		for _, name := range m.names {
			out = append(out, m.mark+name)
		}
	}
	return out
}

// settleTime is how long configuration files must be quiet before they are read: editors and deployments write in several steps.
const settleTime = 300 * time.Millisecond

// watchConfig reloads when a file of the configuration changes, until ctx ends. It watches folders, so that replaced and symlinked files are seen.
func (d *Daemon) watchConfig(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn().Err(err).Msg("configuration files are not watched; use `triggerd reload` or SIGHUP")
		return
	}
	defer func() { _ = w.Close() }()
	d.watchFolders(w)
	quiet := time.NewTimer(settleTime) // once at first: a file may have changed between its reading and the watch
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events:
			if !ok {
				return
			}
			quiet.Reset(settleTime)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			d.log.Warn().Err(err).Msg("watching configuration files")
			quiet.Reset(settleTime)
		case <-quiet.C:
			d.reloadChanged(ctx)
			d.watchFolders(w)
		}
	}
}

func (d *Daemon) reloadChanged(ctx context.Context) {
	before := d.refused.Load()
	res, err := d.reload(ctx)
	if err == nil && res.Changed && d.share != nil {
		d.share.tellReload(ctx)
	}
	d.logReload(before, res, err)
}

// reloadTold is Reload on behalf of another daemon.
func (d *Daemon) reloadTold() {
	before := d.refused.Load()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if res, err := d.reload(ctx); !errors.Is(err, errNotReady) {
		d.logReload(before, res, err)
	}
}

// logReload says what a reload that nobody asked for came to.
func (d *Daemon) logReload(before *string, res console.ReloadResult, err error) {
	switch {
	case err != nil && (before == nil || *before != err.Error()):
		d.log.Error().Err(err).Msg("changed configuration refused, the one before it stays in force")
	case err == nil && res.Changed:
		d.log.Info().Strs("connections", res.Connections).Strs("triggers", res.Triggers).Str("config_version", res.Version).Msg("configuration reloaded")
	}
}

// watchFolders adds the folders of all files that the configuration was read from. Adding one twice is nothing.
func (d *Daemon) watchFolders(w *fsnotify.Watcher) {
	for _, path := range d.plan.Load().config.Sources() {
		dir := path
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if err := w.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn().Err(err).Str("folder", dir).Msg("this folder's configuration files are not watched")
		}
	}
}
