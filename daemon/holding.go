package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

// work is what a lease gives the right to do.
type work interface {
	start(ctx context.Context) error // blocks until it runs
	stop()                           // blocks until nothing of it runs; running turns may end
	fence()                          // makes it end at once, without a word to anybody
}

// holding is a lease that this daemon has, and what it does with it.
type holding struct {
	share   *share
	key     string
	lease   lease
	work    work
	ctx     context.Context // of its start
	cancel  context.CancelFunc
	asked   chan struct{} // closed when it is to stop
	askOnce sync.Once
	failed  chan error
	done    chan struct{} // closed when it is put away and released

	running   atomic.Bool
	giving    atomic.Bool
	notBefore time.Time // of the next try to give it away; guarded by share.mu
}

// start begins with what the lease is for, in the background.
func (s *share) start(key string, l lease) {
	h := &holding{share: s, key: key, lease: l, asked: make(chan struct{}), failed: make(chan error, 1), done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	switch part, isPart := leasedPart(key); {
	case isPart:
		h.work = &partition{h: h, part: part}
	case key == historyLease:
		h.work = &historian{h: h}
	default:
		h.work = &connectionWork{h: h, key: strings.TrimPrefix(key, connectionLease)}
	}
	s.mu.Lock()
	s.held[key] = h
	s.mu.Unlock()
	go h.run()
}

func (h *holding) run() {
	s := h.share
	defer close(h.done)
	defer h.cancel()
	err := h.begin()
	if err == nil {
		h.running.Store(true)
		s.wake()
		select {
		case <-h.asked:
		case err = <-h.failed:
		}
	}
	h.running.Store(false)
	h.work.stop()
	if err := s.release(h); err != nil {
		s.unreleased.Add(1)
	}
	s.forget(h, err)
	if err != nil && h.ctx.Err() == nil {
		s.bus.Note(err, "dropped a lease; another daemon, or this one again, takes it") // the same cause drops many at once
		if errors.Is(err, triggerd.ErrFenced) {
			s.d.metrics.lost.Inc()
		}
	}
	s.wake()
}

// forget takes a holding off the list. What its engine has counted stays.
func (s *share) forget(h *holding, err error) {
	s.d.past.mu.Lock() // so that nobody counts it twice, or not at all
	defer s.d.past.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h.key)
	if err != nil {
		s.wait[h.key] = time.Now().Add(againAfter)
	}
	if p, ok := h.work.(*partition); ok && p.engine.Load() != nil {
		s.d.past.n.Add(p.engine.Load().Stats())
	}
}

func (h *holding) begin() error {
	select {
	case h.share.starts <- struct{}{}:
	case <-h.asked:
		return nil
	}
	defer func() { <-h.share.starts }()
	return h.work.start(h.ctx)
}

// stop asks for the end; done tells when it is there.
func (h *holding) stop() { h.askOnce.Do(func() { close(h.asked) }) }

// ending reports whether it was asked to stop.
func (h *holding) ending() bool {
	select {
	case <-h.asked:
		return true
	default:
		return false
	}
}

// fence makes the end a quick one.
func (h *holding) fence() {
	h.cancel()
	h.work.fence()
	h.stop()
}

func (h *holding) fail(err error) {
	if err == nil {
		return
	}
	select {
	case h.failed <- err:
	default:
	}
}

func (h *holding) isPart() bool {
	_, ok := h.work.(*partition)
	return ok
}

// givePatience is how long a partition starts no turn while its running ones end, so that it can be handed over for balance.
const givePatience = 500 * time.Millisecond

// give hands a partition over if its running turns end soon.
func (h *holding) give() {
	defer h.giving.Store(false)
	p, ok := h.work.(*partition)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, givePatience)
	defer cancel()
	if e := p.engine.Load(); e != nil && e.Yield(ctx) {
		h.stop()
		<-h.done
	}
}

// partition runs the turns of one.
type partition struct {
	h      *holding
	part   turns.Part
	engine atomic.Pointer[turns.Engine]
	end    context.CancelFunc
	ran    chan struct{}
}

func (p *partition) start(ctx context.Context) error {
	s := p.h.share
	d := s.d
	d.reloading.RLock() // so that a reload meets the engine, or the engine the reloaded triggers
	plan := d.plan.Load()
	o := d.engineOptions(plan.config, p.h.lease.Epoch)
	o.Part, o.Follower, o.Slots, o.Paused = &p.part, s.follower, s.slots, s.table.pausedTriggers
	e := turns.New(o)
	e.SetTriggers(plan.specs)
	p.engine.Store(e)
	d.reloading.RUnlock()
	if _, err := e.Recover(ctx); err != nil {
		return fmt.Errorf("recover turns: %w", err)
	}
	run, end := context.WithCancel(context.Background())
	p.end, p.ran = end, make(chan struct{})
	go func() {
		defer close(p.ran)
		p.h.fail(e.Run(run))
	}()
	return nil
}

func (p *partition) stop() {
	e := p.engine.Load()
	if e == nil {
		return
	}
	if p.h.share.session.ended.Load() {
		e.Fence() // also an engine that was only being started
	}
	if p.end != nil {
		p.end()
	}
	drain, cancel := context.WithTimeout(context.Background(), time.Duration(p.h.share.d.plan.Load().config.Server.DrainTimeout))
	defer cancel()
	if e.Fenced() {
		cancel() // what runs is somebody else's now
	}
	e.Drain(drain)
	if p.ran != nil {
		<-p.ran
	}
}

func (p *partition) fence() {
	if e := p.engine.Load(); e != nil {
		e.Fence()
	}
}

func (p *partition) idle() bool {
	e := p.engine.Load()
	if e == nil {
		return false
	}
	for _, n := range e.Counts() {
		if n.Running > 0 {
			return false
		}
	}
	return true
}

// connectionWork is a connection's inbox and source.
type connectionWork struct {
	h   *holding
	key string
}

func (w *connectionWork) start(ctx context.Context) error {
	d := w.h.share.d
	d.reloading.RLock()
	defer d.reloading.RUnlock()
	p := d.plan.Load()
	if _, configured := p.nameOf[w.key]; !configured {
		return nil // removed meanwhile: the next step gives it up
	}
	if err := d.reader.LoadLanes(ctx, w.key); err != nil {
		return err
	}
	o := owner{epoch: w.h.lease.Epoch, opener: d.reader, fail: w.h.fail}
	if err := d.setVersion(ctx, w.key, p, o.epoch); err != nil {
		return err
	}
	return d.startConnection(ctx, o, w.key, p)
}

func (w *connectionWork) stop()  { w.h.share.d.stopConnection(w.key) }
func (w *connectionWork) fence() {}

// historian bounds the history of all daemons.
type historian struct {
	h    *holding
	end  context.CancelFunc
	done chan struct{}
}

func (w *historian) start(context.Context) error {
	ctx, end := context.WithCancel(context.Background())
	w.end, w.done = end, make(chan struct{})
	go func() {
		defer close(w.done)
		w.h.share.d.housekeep(ctx)
	}()
	return nil
}

func (w *historian) stop() {
	if w.end != nil {
		w.end()
		<-w.done
	}
}

func (w *historian) fence() {}
