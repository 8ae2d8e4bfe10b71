package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

// term is one ownership of inboxes, sources and turns: from the lease on, until the daemon stops or another one has taken over.
type term struct {
	lease  *lease
	engine *turns.Engine
	found  turns.Recovered
	ended  chan error // why it cannot go on; [triggerd.ErrFenced] when another daemon has taken over
	undo   teardown
}

// fail ends the term. Only the first reason counts.
func (t *term) fail(err error) {
	if err == nil {
		return
	}
	select {
	case t.ended <- err:
	default:
	}
}

// startTerm goes on with what an earlier owner left, and starts everything that only an owner does. The caller holds d.reloading.
//
// It is one straight function on purpose: each step's teardown is registered right after the step, and runs in reverse order.
func (d *Daemon) startTerm(ctx context.Context, l *lease) (_ *term, err error) {
	p := d.plan.Load()
	t := &term{lease: l, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stopTerm(t))
		}
	}()
	// The lease is kept until the last turn is drained: another daemon must not begin before that.
	var loops sync.WaitGroup
	keep, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	t.undo.add("lease", func() error { stopKeeping(); loops.Wait(); return l.release() })
	t.engine = turns.New(d.engineOptions(p.config, l.epoch))
	loops.Go(func() {
		if err := l.keep(keep, d.members.peers); err != nil {
			t.engine.Fence()
			t.fail(err)
		}
	})
	t.engine.SetTriggers(p.specs)
	if t.found, err = t.engine.Recover(ctx); err != nil {
		return nil, fmt.Errorf("recover turns: %w", err)
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
	loops.Go(func() { t.fail(t.engine.Run(intake)) })
	loops.Go(func() { d.housekeep(intake, t.engine) })
	d.term.Store(t)
	t.undo.add("connections", func() error { d.stopConnections(); return nil }) // also those of a start that gets half way
	return t, d.apply(ctx, t, nil, p)
}

// stopTerm puts away what startTerm has started, and waits for that.
func (d *Daemon) stopTerm(t *term) error {
	err := t.undo.run(d.log)
	d.term.CompareAndSwap(t, nil)
	return err
}

// engine is what turns are read with: the owner's, or on a standby one that runs nothing.
func (d *Daemon) engine() *turns.Engine {
	if t := d.term.Load(); t != nil {
		return t.engine
	}
	return d.reader
}

// owning is the engine that may change turns. On a standby the error is [triggerd.ErrUnavailable], and names the owner.
func (d *Daemon) owning() (*turns.Engine, error) {
	if t := d.term.Load(); t != nil {
		return t.engine, nil
	}
	who := "no daemon"
	if o := d.candidate.holder.Load(); o != nil && !o.Released {
		who = fmt.Sprintf("daemon %s (process %d on %s)", o.Daemon, o.PID, o.Host)
	}
	return nil, fmt.Errorf("%w: this daemon is a standby, %s owns the turns: ask that one", triggerd.ErrUnavailable, who)
}

// alive reports whether what runs here may have effects: not when another daemon may have taken over.
func (d *Daemon) alive() bool {
	t := d.term.Load()
	return t != nil && t.lease.alive()
}
