package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/triggerd/triggerd/turns"
)

// term is the ownership of everything in an embedded store: inboxes, sources and turns.
type term struct {
	engine *turns.Engine
	found  turns.Recovered
	owner  owner
	undo   teardown
}

// startTerm goes on with what an earlier run left. The caller holds d.reloading.
//
// It is one straight function on purpose: each step's teardown is registered right after the step, and runs in reverse order.
func (d *Daemon) startTerm(ctx context.Context) (_ *term, err error) {
	p := d.plan.Load()
	t := &term{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stopTerm(t))
		}
	}()
	epoch, err := nextEpoch(ctx, d.bus)
	if err != nil {
		return nil, err
	}
	var loops sync.WaitGroup
	t.undo.add("loops", func() error { loops.Wait(); return nil })
	t.engine = turns.New(d.engineOptions(p.config, epoch))
	t.owner = owner{epoch: epoch, opener: t.engine, fail: d.fail}
	t.engine.SetTriggers(p.specs)
	if t.found, err = t.engine.Recover(ctx); err != nil {
		return nil, fmt.Errorf("recover turns: %w", err)
	}
	for trigger := range p.pauseAfter {
		// An end that was not told before a crash is counted by the start, and may just have paused its trigger.
		if err := t.engine.LoadPause(ctx, trigger); err != nil {
			return nil, err
		}
	}

	// Intake ends first, then running turns are drained, then the rest is closed.
	intake, stopIntake := context.WithCancel(context.WithoutCancel(ctx))
	t.undo.add("turns", func() error {
		drain, cancel := context.WithTimeout(context.Background(), time.Duration(p.config.Server.DrainTimeout))
		defer cancel()
		if t.engine.Fenced() {
			cancel() // what runs is somebody else's now
		}
		t.engine.Drain(drain)
		return nil
	})
	t.undo.add("intake", func() error { stopIntake(); return nil })
	loops.Go(func() { d.fail(t.engine.Run(intake)) })
	d.term.Store(t)
	loops.Go(func() { d.housekeep(intake) })
	t.undo.add("connections", func() error { d.stopConnections(); return nil }) // also those of a start that gets half way
	return t, errors.Join(d.apply(ctx, t.owner, nil, p), t.engine.ReleaseHeld(ctx))
}

// stopTerm puts away what startTerm has started, and waits for that.
func (d *Daemon) stopTerm(t *term) error {
	err := t.undo.run(d.log)
	d.term.CompareAndSwap(t, nil)
	return err
}

// engine is what turns are read and opened with: the embedded store's, or on an external NATS one that runs nothing.
func (d *Daemon) engine() *turns.Engine {
	if t := d.term.Load(); t != nil {
		return t.engine
	}
	return d.reader
}

// engines are those that run turns here.
func (d *Daemon) engines() []*turns.Engine {
	if t := d.term.Load(); t != nil {
		return []*turns.Engine{t.engine}
	}
	if d.share == nil {
		return nil
	}
	return d.share.engines()
}

// alive reports whether what runs here may have effects: not when another daemon may have taken over.
func (d *Daemon) alive() bool { return d.share == nil || d.share.session.alive() }
