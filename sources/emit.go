package sources

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/triggerd/triggerd"
)

// Waits of a persistent emitter between two tries: short at first, because most outages are restarts, and never
// so long that recovery goes unnoticed.
const (
	persistFirst = 50 * time.Millisecond
	persistMax   = 2 * time.Second
)

// Blames reports whether err says that the event itself can never be stored: skip it and go on.
func Blames(err error) bool {
	return errors.Is(err, triggerd.ErrInvalidEvent) || errors.Is(err, triggerd.ErrTooLarge) || errors.Is(err, triggerd.ErrLoop)
}

// Observe returns an Emitter that counts in s what e answers. The supervisor wraps every source's Emitter with it.
func Observe(e Emitter, s *Status) Emitter { return &observed{e, s} }

type observed struct {
	next   Emitter
	status *Status
}

func (o *observed) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	r, err := o.next.Emit(ctx, ev)
	o.count([]triggerd.Receipt{r}, err)
	return r, err
}

func (o *observed) EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) ([]triggerd.Receipt, error) {
	rs, err := o.next.EmitPage(ctx, page, next)
	// A refused page is sent again event by event: the culprit is counted then.
	if !Blames(err) {
		o.count(rs, err)
	}
	return rs, err
}

func (o *observed) count(rs []triggerd.Receipt, err error) {
	if err != nil {
		if Blames(err) {
			o.status.Rejected()
		}
		return
	}
	fresh, dup := 0, 0
	for _, r := range rs {
		if r.Duplicate {
			dup++
		} else {
			fresh++
		}
	}
	o.status.stored(fresh, dup)
}

// Persistent returns an Emitter over rt.Emit that answers [triggerd.ErrUnavailable] by trying again, with growing waits
// up to 2 s, until the store takes the event or ctx ends (then it returns ctx's error). Meanwhile rt.Status shows the problem.
// Sources that can hold their upstream back use it; others should not, for the caller waits.
func Persistent(rt Runtime) Emitter { return &persistent{rt: rt} }

type persistent struct {
	rt   Runtime
	logs Limiter
}

func (p *persistent) Emit(ctx context.Context, ev triggerd.Event) (r triggerd.Receipt, err error) {
	err = p.retry(ctx, func() (err error) {
		r, err = p.rt.Emit.Emit(ctx, ev)
		return err
	})
	return r, err
}

func (p *persistent) EmitPage(ctx context.Context, page []triggerd.Event, next triggerd.Cursor) (rs []triggerd.Receipt, err error) {
	err = p.retry(ctx, func() (err error) {
		rs, err = p.rt.Emit.EmitPage(ctx, page, next)
		return err
	})
	return rs, err
}

func (p *persistent) retry(ctx context.Context, try func() error) error {
	failed := false
	for wait := persistFirst; ; wait = min(2*wait, persistMax) {
		err := try()
		if !errors.Is(err, triggerd.ErrUnavailable) {
			if failed && err == nil {
				p.rt.Status.Report(nil)
			}
			return err
		}
		failed = true
		p.rt.Status.Report(err)
		if n, ok := p.logs.Allow("unavailable"); ok {
			p.rt.Log.Warn().Err(err).Uint64("suppressed", n).Msg("store unavailable, event kept and sent again")
		}
		// Half fixed, half jitter: sources must not come back in step.
		if err := Sleep(ctx, wait/2+rand.N(wait/2)); err != nil {
			return err
		}
	}
}

// EmitEach stores events one by one, in order, after a page of them was refused. Events that can never be stored are
// handed to skip and left out; any other error ends it.
func EmitEach(ctx context.Context, e Emitter, events []triggerd.Event, skip func(i int, err error)) error {
	for i := range events {
		if _, err := e.Emit(ctx, events[i]); Blames(err) {
			skip(i, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Sleep waits for d or until ctx ends, and then returns its error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
