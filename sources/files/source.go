package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

const (
	// SettleDefault is how long a file must be quiet before it counts.
	SettleDefault = 2 * time.Second
	// scanEvery finds what watches missed, where they can be trusted.
	scanEvery = 5 * time.Minute
	// pollEvery does where they cannot: network file systems, and folders beyond the watch limit.
	pollEvery = 10 * time.Second
	// saveEvery is how often the position is stored at most; after a crash, later events come again as duplicates.
	saveEvery = time.Second
	// maxPage and maxPageBytes bound what is appended at once.
	maxPage      = 64
	maxPageBytes = 4 << 20
	// stopTimeout bounds the last store of the position after a stop.
	stopTimeout = 2 * time.Second
)

// Options describe what is watched.
type Options struct {
	Paths   []string      // globs; absolute
	Exclude []string      // globs; those without a slash are matched against the name alone
	Settle  time.Duration // 0 = SettleDefault
	MaxRead int64         // contents up to this many bytes go into the payload; 0 = never
}

// Source watches files. One value may be run again and again, but only once at a time.
type Source struct {
	o     Options
	match *patterns
	watch func() (*watcher, error) // tests put their own in
}

// New checks the patterns. The paths need not exist yet.
func New(o Options) (*Source, error) {
	match, err := compileAll(o.Paths, o.Exclude)
	if err != nil {
		return nil, fmt.Errorf("files source: %w", err)
	}
	if o.Settle < 0 || o.MaxRead < 0 {
		return nil, errors.New("files source: settle and max_read must not be negative")
	}
	if o.Settle == 0 {
		o.Settle = SettleDefault
	}
	return &Source{o: o, match: match, watch: newWatcher}, nil
}

// settling is a path that something happened to.
type settling struct {
	due  time.Time
	seen *state // what the last look found; nil before the first look
}

// run is one life of a source; a single goroutine owns it.
type run struct {
	*Source
	rt      sources.Runtime
	emit    sources.Emitter
	w       *watcher
	dirs    map[string]bool // watched folders
	anchors map[string]bool // folders watched only because a root below them does not exist yet
	index   map[string]state
	pending map[string]*settling
	logs    sources.Limiter

	dirty    bool      // index is not stored
	saved    time.Time // when it last was
	scanAt   time.Time
	poll     bool // scan often
	lost     int  // folders without a watch
	wantScan bool
	wantRoot bool // a root may have appeared or gone
}

// Run implements [sources.Source].
func (s *Source) Run(ctx context.Context, rt sources.Runtime) error {
	r := &run{
		Source: s, rt: rt, emit: sources.Persistent(rt),
		dirs: make(map[string]bool), anchors: make(map[string]bool), index: make(map[string]state), pending: make(map[string]*settling),
	}
	r.openWatcher()
	defer r.w.close()
	err := r.start(ctx)
	if err == nil {
		rt.Status.Running()
		err = r.loop(ctx)
	}
	if ctx.Err() != nil && !errors.Is(err, triggerd.ErrFenced) {
		r.saveLast(ctx)
		return nil
	}
	return err
}

// start scans everything against the stored position. Watches are set before folders are read, so nothing falls in between.
func (r *run) start(ctx context.Context) error {
	var mem *memory
	if r.rt.Cursor != nil {
		var err error
		if mem, err = decode(r.rt.Cursor, r.match); err != nil {
			r.rt.Log.Error().Err(err).Msg("files that are there count as known")
			mem = nil
			if _, err := r.emit.Emit(ctx, sources.Gap("position of watched files lost: "+err.Error(), time.Now())); err != nil {
				return err
			}
		}
	}
	r.scan(func(path string, s state) {
		verdict := isKnown
		if mem != nil {
			verdict = mem.verdict(path, s)
		}
		switch verdict {
		case isKnown:
			r.index[path] = s
		case isChanged:
			r.index[path] = state{size: -1} // any state but the present one
			r.mark(path, &s)
		case isNew:
			r.mark(path, &s)
		}
	})
	if mem == nil || mem.changed {
		return r.save(ctx, r.emit)
	}
	r.dirty = true
	return nil
}

// loop handles watches, settled files and scans until ctx ends.
func (r *run) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if r.wantScan || !time.Now().Before(r.scanAt) {
			r.rescan()
		}
		if r.wantRoot {
			r.openRoots(r.noticed)
		}
		if err := r.settle(ctx, time.Now()); err != nil {
			return err
		}
		timer.Reset(time.Until(r.wake()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case ev, ok := <-r.w.events:
			if !ok {
				return errors.New("file watcher ended")
			}
			r.handle(ev)
			r.drain()
		case err, ok := <-r.w.errors:
			if !ok {
				return errors.New("file watcher ended")
			}
			if err := r.watchError(ctx, err); err != nil {
				return err
			}
		}
	}
}

// drain takes what else the watcher has, so that a burst costs one round.
func (r *run) drain() {
	for range 1000 {
		select {
		case ev, ok := <-r.w.events:
			if !ok {
				return
			}
			r.handle(ev)
		default:
			return
		}
	}
}

// wake is when there is something to do next without an event.
func (r *run) wake() time.Time {
	next := r.scanAt
	for _, p := range r.pending {
		if p.due.Before(next) {
			next = p.due
		}
	}
	if due := r.saved.Add(saveEvery); r.dirty && due.Before(next) {
		next = due
	}
	return next
}

// mark starts a path's quiet time anew. seen is its state where the caller has looked.
func (r *run) mark(path string, seen *state) {
	r.pending[path] = &settling{due: time.Now().Add(r.o.Settle), seen: seen}
}

// settle emits the files whose quiet time is over, in the order in which they settled, and stores the position when it is time.
func (r *run) settle(ctx context.Context, now time.Time) error {
	var due []string
	for path, p := range r.pending {
		if !p.due.After(now) {
			due = append(due, path)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(r.pending[a].due.Compare(r.pending[b].due), cmp.Compare(a, b))
	})
	for len(due) > 0 {
		var page []*found
		for size := 0; len(due) > 0 && len(page) < maxPage && size < maxPageBytes; due = due[1:] {
			if f := r.look(due[0]); f != nil {
				page = append(page, f)
				size += len(f.event.Payload)
			}
		}
		if err := r.store(ctx, page); err != nil {
			return err
		}
	}
	if r.dirty && now.Sub(r.saved) >= saveEvery {
		return r.save(ctx, r.emit)
	}
	return nil
}

// look decides what a quiet path is: an event, nothing new, gone, or not quiet after all.
func (r *run) look(path string) *found {
	p := r.pending[path]
	captured, ok := r.match.match(path)
	if !ok {
		delete(r.pending, path)
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		r.forget(path)
		return nil
	}
	now := stateOf(info)
	if p.seen != nil && !p.seen.same(now) {
		r.mark(path, &now) // it changed without a sign, as on network file systems
		return nil
	}
	old, was := r.index[path]
	if was && old.same(now) {
		r.known(path, now)
		return nil
	}
	typ := Created
	if was {
		typ = Changed
	}
	f, err := read(path, typ, captured, r.o.MaxRead)
	switch {
	case errors.Is(err, errChanging):
		r.mark(path, nil)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		r.forget(path)
		return nil
	case err != nil:
		delete(r.pending, path)
		r.rt.Status.Rejected()
		r.rt.Log.Error().Err(err).Msg("file left out")
		return nil
	}
	return f
}

// forget drops a path that is not there any more: if it comes back, it is created.
func (r *run) forget(path string) {
	delete(r.pending, path)
	if _, ok := r.index[path]; ok {
		delete(r.index, path)
		r.dirty = true
	}
}

// known records a state that needs no event, or has had it.
func (r *run) known(path string, s state) {
	delete(r.pending, path)
	if r.index[path] != s {
		r.index[path] = s
		r.dirty = true
	}
}

// store appends a page; nil means that every event is stored or can never be.
func (r *run) store(ctx context.Context, page []*found) error {
	if len(page) == 0 {
		return nil
	}
	events := make([]triggerd.Event, len(page))
	for i, f := range page {
		events[i] = f.event
	}
	_, err := r.emit.EmitPage(ctx, events, nil)
	if sources.Blames(err) {
		err = r.storeEach(ctx, page)
	}
	if err != nil {
		return err
	}
	for _, f := range page {
		r.known(f.path, f.state)
	}
	return nil
}

// storeEach appends one by one. A file whose content is too large for an event goes without it.
func (r *run) storeEach(ctx context.Context, page []*found) error {
	for _, f := range page {
		_, err := r.emit.Emit(ctx, f.event)
		if errors.Is(err, triggerd.ErrTooLarge) {
			if err := f.withoutContent(err); err != nil {
				return err
			}
			_, err = r.emit.Emit(ctx, f.event)
		}
		if sources.Blames(err) {
			if n, ok := r.logs.Allow("refused"); ok {
				r.rt.Log.Warn().Err(err).Str("event", f.event.ID).Uint64("suppressed", n).Msg("file event refused")
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// save stores the position as a cursor of its own: events carry none, for it can be large.
func (r *run) save(ctx context.Context, to sources.Emitter) error {
	now := time.Now()
	if _, err := to.EmitPage(ctx, nil, encode(r.index, r.match, r.oldestPending(now), now)); err != nil {
		return fmt.Errorf("store position of watched files: %w", err)
	}
	r.dirty, r.saved = false, now
	return nil
}

// oldestPending is a time before which no file that waits for its event changed: the position must not claim to know it.
func (r *run) oldestPending(now time.Time) int64 {
	oldest := now.UnixNano()
	for _, p := range r.pending {
		at := p.due.Add(-r.o.Settle - time.Second).UnixNano() // a watch tells of a change at once
		if p.seen != nil {
			at = p.seen.ctime
		}
		oldest = min(oldest, at)
	}
	return oldest
}

// saveLast stores the position once more after a stop. It tries once: what it fails to store comes again as duplicates.
func (r *run) saveLast(ctx context.Context) {
	if !r.dirty {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := r.save(ctx, r.rt.Emit); err != nil {
		r.rt.Log.Warn().Err(err).Msg("last position not stored, some events will come again as duplicates")
	}
}

// watchError deals with what the watcher reports.
func (r *run) watchError(ctx context.Context, err error) error {
	r.wantScan = true
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		r.rt.Log.Warn().Err(err).Msg("file watcher reported an error, everything is scanned")
		return nil
	}
	r.rt.Log.Warn().Msg("file watcher overflowed, everything is scanned")
	_, err = r.emit.Emit(ctx, sources.Gap("inotify queue overflowed: states of files between two scans are unknown", time.Now()))
	return err
}
