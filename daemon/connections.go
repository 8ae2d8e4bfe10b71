package daemon

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/cursor"
	"github.com/triggerd/triggerd/inbox"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/files"
	"github.com/triggerd/triggerd/sources/natspush"
)

// connection is a running connection: its inbox, and its source where it has one of its own.
type connection struct {
	key    string
	cfg    configs.Connection // zero for the reserved ones
	own    owner
	status *sources.Status
	inbox  *inbox.Consumer

	stopInbox  context.CancelFunc
	stopSource context.CancelFunc // nil = no source runs
	sourceDone chan struct{}
	inboxDone  chan struct{}
}

// owner is an ownership of connections.
type owner struct {
	epoch  uint64 // higher than that of any owner before
	opener inbox.Opener
	fail   func(error) // told why it cannot go on; [triggerd.ErrFenced] when another daemon has taken over
}

// connectionKeys are the connections that have something to do, in order.
func (p *plan) connectionKeys() []string {
	var keys []string
	for key := range p.nameOf {
		if key != ownConnection || len(p.defs[ownConnection]) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// apply makes p live after old (nil at start) for an owner of all connections: versions first, then inboxes and sources of what is new or changed;
// what is unchanged keeps running.
func (d *Daemon) apply(ctx context.Context, o owner, old, p *plan) error {
	keys := p.connectionKeys()
	if d.connection(ownConnection) != nil && !slices.Contains(keys, ownConnection) {
		keys = append(keys, ownConnection)
	}
	for _, key := range keys {
		if old != nil && old.version[key] == p.version[key] && d.connection(key) != nil {
			continue
		}
		if err := d.setVersion(ctx, key, p, o.epoch); err != nil {
			return fmt.Errorf("connection %s: %w", d.connectionName(key), err)
		}
	}
	d.stopRemoved(keys)
	var errs []error // one connection that does not start keeps no other from starting
	for _, key := range keys {
		if p.config.Connections[p.nameOf[key]].Push == nil {
			continue
		}
		// Before any connection starts: a new user makes the server reload its accounts, and for a moment it answers nobody.
		if err := d.bus.EnsureApp(key); err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", p.nameOf[key], err))
		}
	}
	for _, key := range keys {
		if err := d.startConnection(ctx, o, key, p); err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", p.nameOf[key], err))
		}
	}
	return errors.Join(errs...)
}

// applyOwned makes p live for the connections that this daemon owns; the others have other owners.
func (d *Daemon) applyOwned(ctx context.Context, p *plan) error {
	d.connMu.Lock()
	owned := make(map[string]owner, len(d.conns))
	for key, c := range d.conns {
		owned[key] = c.own
	}
	d.connMu.Unlock()
	var errs []error
	for _, key := range sortedKeys(owned) {
		name, configured := p.nameOf[key]
		if !configured {
			continue // it is stopped, and its lease released, in a moment
		}
		err := d.setVersion(ctx, key, p, owned[key].epoch)
		if err == nil {
			err = d.startConnection(ctx, owned[key], key, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) connection(key string) *connection {
	d.connMu.Lock()
	defer d.connMu.Unlock()
	return d.conns[key]
}

// startConnection starts the inbox of a connection once, and its source again when its configuration has changed.
func (d *Daemon) startConnection(ctx context.Context, o owner, key string, p *plan) error {
	cfg := p.config.Connections[p.nameOf[key]]
	c := d.connection(key)
	if c != nil && reflect.DeepEqual(c.cfg, cfg) {
		return nil
	}
	if c == nil {
		c = &connection{key: key, own: o, status: d.statusOf(key)}
		d.startInbox(c)
		d.connMu.Lock()
		d.conns[key] = c
		d.connMu.Unlock()
	}
	c.stopTheSource()
	c.cfg = cfg
	if err := d.startSource(ctx, c, p.nameOf[key]); err != nil {
		c.cfg = configs.Connection{} // so that the next reload tries again
		return err
	}
	return nil
}

// statusOf is what is known of a connection's source; it outlives the ownership.
func (d *Daemon) statusOf(key string) *sources.Status {
	d.connMu.Lock()
	defer d.connMu.Unlock()
	if d.status[key] == nil {
		d.status[key] = new(sources.Status)
	}
	return d.status[key]
}

func (d *Daemon) startInbox(c *connection) {
	ctx, cancel := context.WithCancel(context.Background())
	c.stopInbox, c.inboxDone = cancel, make(chan struct{})
	c.inbox = &inbox.Consumer{
		Bus: d.bus, Connection: c.key, Epoch: strconv.FormatUint(c.own.epoch, 10), Opener: c.own.opener, Log: d.log,
		Decider: func(seq uint64) (inbox.Decider, error) {
			set, version, err := d.setFor(ctx, c.key, seq)
			return decider{d, set, version}, err
		},
	}
	go func() {
		defer close(c.inboxDone)
		c.own.fail(c.inbox.Run(ctx))
	}()
}

// startSource starts what produces the connection's events.
func (d *Daemon) startSource(ctx context.Context, c *connection, name string) error {
	open := &emitter{d: d, key: c.key}
	switch {
	case c.cfg.Webhook != nil:
		c.status.Running() // on every daemon: see routeHooks
	case c.cfg.Push != nil:
		if _, err := d.bus.EnsurePush(ctx, c.key, int64(c.cfg.Push.MaxBytes)); err != nil {
			return err
		}
		src := natspush.New(natspush.Options{
			JS: d.bus.JS, NC: d.bus.NC, Stream: d.bus.Names.Push(c.key), Durable: "push",
			Prefix: d.bus.Names.Prefix + ".push." + c.key + ".", SubmitPrefix: d.bus.Names.Prefix + ".submit." + c.key + ".",
		})
		d.supervise(c, name, src, func(context.Context) (*emitter, error) { return open, nil })
	case c.cfg.Cron != nil:
		src, err := cronSource(c.cfg.Cron, d.metrics.slotsOf(c.key))
		if err != nil {
			return err
		}
		d.supervise(c, name, src, d.owned(c))
	case c.cfg.Files != nil:
		f := c.cfg.Files
		src, err := files.New(files.Options{Paths: f.Paths, Exclude: f.Exclude, Settle: time.Duration(f.Settle), MaxRead: int64(f.MaxRead)})
		if err != nil {
			return err
		}
		d.supervise(c, name, src, d.owned(c))
	}
	return nil
}

func cronSource(c *configs.Cron, count func(cron.SlotState, int)) (sources.Source, error) {
	s, err := c.Build()
	if err != nil {
		return nil, fmt.Errorf("build schedule: %w", err)
	}
	return &cron.Source{
		Schedule: s, CatchUp: cron.CatchUp(c.CatchUp), Window: time.Duration(c.CatchUpWindow), Limit: c.CatchUpLimit, Jitter: time.Duration(c.Jitter),
		Count: count,
	}, nil
}

// owned makes emitters that own their connection: each start of the source writes the fence anew, so a start that is left over cannot append.
func (d *Daemon) owned(c *connection) func(context.Context) (*emitter, error) {
	return func(ctx context.Context) (*emitter, error) {
		fence, err := cursor.Acquire(ctx, d.bus, c.key, cursor.Owner{Daemon: d.id, Epoch: c.own.epoch, Since: time.Now().UTC()})
		if err != nil {
			return nil, err
		}
		return &emitter{d: d, key: c.key, fence: fence}, nil
	}
}

func (d *Daemon) supervise(c *connection, name string, src sources.Source, fresh func(context.Context) (*emitter, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	c.stopSource, c.sourceDone = cancel, make(chan struct{})
	log := d.log.With().Str("connection", name).Logger()
	go func() {
		defer close(c.sourceDone)
		err := sources.Supervise(ctx, src, func(ctx context.Context) (sources.Runtime, error) {
			e, err := fresh(ctx)
			if err != nil {
				return sources.Runtime{}, err
			}
			if e.fence != (bus.Fence{}) {
				if e.start, err = cursor.Load(ctx, d.bus, c.key, triggerd.DefaultSubscription); err != nil {
					return sources.Runtime{}, err
				}
			}
			return sources.Runtime{Connection: name, Cursor: e.start, Emit: e, Log: log}, nil
		}, sources.BackoffOptions{Status: c.status, Log: log})
		if errors.Is(err, triggerd.ErrFenced) {
			c.own.fail(fmt.Errorf("connection %s: %w", name, err))
		}
	}()
}

func (c *connection) stopTheSource() {
	if c.stopSource != nil {
		c.stopSource()
		<-c.sourceDone
		c.stopSource = nil
	}
}

func (c *connection) stop() {
	c.stopTheSource()
	c.stopInbox()
	<-c.inboxDone
}

// stopRemoved stops the connections that are configured no more. Their position stays, for when they come back.
func (d *Daemon) stopRemoved(keep []string) {
	d.connMu.Lock()
	var gone []*connection
	for key, c := range d.conns {
		if !slices.Contains(keep, key) {
			gone = append(gone, c)
			delete(d.conns, key)
		}
	}
	d.connMu.Unlock()
	stopAll(gone)
}

// stopConnection stops one; nothing happens when it does not run.
func (d *Daemon) stopConnection(key string) {
	d.connMu.Lock()
	c := d.conns[key]
	delete(d.conns, key)
	d.connMu.Unlock()
	if c != nil {
		c.stop()
	}
}

// stopConnections ends all intake: sources first, so that nothing new comes, then inboxes.
func (d *Daemon) stopConnections() {
	d.connMu.Lock()
	all := make([]*connection, 0, len(d.conns))
	for _, c := range d.conns {
		all = append(all, c)
	}
	clear(d.conns)
	d.connMu.Unlock()
	stopAll(all)
}

func stopAll(cs []*connection) {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(c.stop)
	}
	wg.Wait()
}
