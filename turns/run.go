package turns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/failpoint"
)

// run makes one attempt of a turn that the board has handed out, and records what became of it.
func (e *Engine) run(ctx context.Context, t *turn, spec *Spec) {
	stopped := sync.OnceFunc(e.actions.Done)
	defer stopped()
	w, err := e.whole(e.closing, t)
	if err != nil && e.closing.Err() == nil {
		// It can never be read: it is over, and what comes behind it goes on (P7).
		e.final(t, w, Dead, e.cause("the turn cannot be read: "+err.Error()), nil)
		return
	}
	if err != nil || !e.gone(t) {
		e.release(t)
		return
	}
	switch why := context.Cause(ctx); {
	case errors.Is(why, ErrCancelled):
		e.final(t, w, Cancelled, ErrCancelled.Error(), nil)
		return
	case why != nil:
		e.release(t)
		return
	}
	out := e.attempt(ctx, t, spec, e.begin(t, spec, w))
	stopped()
	failpoint.Hit(failpoint.ActionFinished)
	e.stats.attempt()
	defer e.freeSlot(t)()
	e.conclude(ctx, t, spec, w, out)
}

// freeSlot lets another turn start while this one's end is being written: a slot bounds actions, not the store's answers.
// The turn's lane stays closed until the entry is durable. It returns what ends that.
func (e *Engine) freeSlot(t *turn) func() {
	select {
	case e.records <- struct{}{}:
	default:
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.board.ran(t)
	e.wakeLocked()
	return func() { <-e.records }
}

// whole is the turn with its event, from memory or from the ledger. With an error it is what could be read, never nil.
func (e *Engine) whole(ctx context.Context, t *turn) (*loaded, error) {
	if w := e.uncache(t); w != nil {
		return w, nil
	}
	for {
		w, err := e.ledger.load(ctx, t.wholeSeq)
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, triggerd.ErrUnavailable) || !bus.Pause(ctx, writePause) {
			if w == nil {
				w = &loaded{event: triggerd.Event{Connection: t.key.Connection, ID: t.key.EventID, Hops: t.hops}}
			}
			w.torn = true
			return w, err
		}
	}
}

// gone blocks until no process of an earlier attempt is left. It is false when the engine stops first.
func (e *Engine) gone(t *turn) bool {
	for t.process != nil {
		err := e.opts.WaitGone(e.work, *t.process)
		if err == nil {
			t.process = nil
			break
		}
		if !bus.Pause(e.work, writePause) {
			return false
		}
		e.warn(t, err, "turn waits for the end of its earlier attempt")
	}
	return true
}

// begin counts the attempt and makes what its action sees.
func (e *Engine) begin(t *turn, spec *Spec, w *loaded) *Attempt {
	e.mu.Lock()
	t.attempt++
	if t.firstTry.IsZero() {
		t.firstTry = time.Now() // with its monotonic reading, as all that is only waited for
	}
	e.mu.Unlock()
	a := &Attempt{
		Key: t.key, Trigger: spec.Name, Connection: e.opts.Names(t.key.Connection), Event: w.event, HasInput: w.kind != "",
		Thread: t.thread, Number: t.attempt, Opened: t.opened,
	}
	if a.HasInput {
		a.Input = decodeInput(w.input, w.kind, e.opts.FromJSON)
	}
	return a
}

// attempt runs the action; a `running` entry comes first wherever a crash must know that something was under way (design §6).
func (e *Engine) attempt(ctx context.Context, t *turn, spec *Spec, a *Attempt) triggerd.Outcome {
	if spec.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, spec.Timeout, ErrTimeout)
		defer stop()
	}
	a.Started = func(_ context.Context, p Process) error {
		en := &Entry{State: Running}
		if p != (Process{}) {
			en.Process = &p
		}
		if spec.OnCrash == OnCrashPark {
			en.OnCrash = OnCrashPark
		}
		// A stop does not wait for an owner to be known: nothing is written yet.
		if err := e.sure(e.work); err != nil {
			return err
		}
		// The attempt's own context may end while this is written; the entry must still be known to have been written or not.
		if err := e.write(e.closing, t, en); err != nil {
			return err
		}
		failpoint.Hit(failpoint.AfterRunning)
		return context.Cause(ctx)
	}
	if !spec.Action.NeedsRunning() && (e.opts.Bus.External() || spec.OnCrash == OnCrashPark) {
		if err := a.Started(ctx, Process{}); err != nil {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "record the start: " + err.Error()}
		}
	}
	// An answer of the store that waited while this process was frozen says nothing about the present.
	for !e.opts.Alive() {
		if !bus.Pause(ctx, alivePause) {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "not started: another daemon may own this turn"}
		}
	}
	failpoint.Hit(failpoint.ActionStarted)
	return e.act(ctx, t, spec, a)
}

// alivePause is how often an attempt that waits for its owner to be sure asks again.
const alivePause = 20 * time.Millisecond

// act runs the action; a panic ends the turn, not the daemon.
func (e *Engine) act(ctx context.Context, t *turn, spec *Spec, a *Attempt) (out triggerd.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			// The value may hold payload, so only the turn has it.
			e.log.Error().Str("turn", t.hash).Str("trigger", t.key.Trigger).Bytes("stack", debug.Stack()).Msg("action panicked")
			out = triggerd.Outcome{Verb: triggerd.Dead, Cause: fmt.Sprintf("the action panicked: %v", p)}
		}
	}()
	return spec.Action.Run(ctx, a)
}

// conclude turns an outcome into the turn's next state and records it.
func (e *Engine) conclude(ctx context.Context, t *turn, spec *Spec, w *loaded, out triggerd.Outcome) {
	cause, r := e.cause(out.Cause), &out.Result
	why := context.Cause(ctx)
	switch {
	case errors.Is(why, triggerd.ErrFenced):
		e.forget(t)
	case out.Verb == triggerd.Done:
		e.final(t, w, Done, "", r)
	case errors.Is(why, ErrCancelled):
		e.final(t, w, Cancelled, ErrCancelled.Error(), r)
	case out.Verb == triggerd.Dead:
		e.final(t, w, Dead, cause, r)
	case out.Verb == triggerd.Parked:
		e.settle(t, w, &Entry{State: Parked, Cause: cause}, r)
	case errors.Is(why, ErrShutdown):
		e.interrupted(t, spec, w)
	default:
		e.failed(t, spec, w, cause, out)
	}
}

// failed plans the next attempt, or gives up.
func (e *Engine) failed(t *turn, spec *Spec, w *loaded, cause string, out triggerd.Outcome) {
	if out.Verb != triggerd.Retry {
		cause = strings.TrimSpace("the action gave no verdict " + cause)
	}
	now := time.Now() // UTC would drop the monotonic reading, and a step of the wall clock would stretch or skip the wait
	wait, over := spec.Retry.next(t.attempt, t.firstTry, now, out.RetryAfter)
	if over != "" {
		e.final(t, w, Dead, fmt.Sprintf("%s (attempt %d of %d: %s)", cause, t.attempt, spec.Retry.Attempts, over), &out.Result)
		return
	}
	at := now.Add(wait)
	e.settle(t, w, &Entry{State: Failed, Cause: cause, NotBefore: &at}, &out.Result)
}

// interrupted records that a stop of the daemon cut the attempt short: it does not count, unless its trigger wants a person to look.
func (e *Engine) interrupted(t *turn, spec *Spec, w *loaded) {
	if spec.OnCrash == OnCrashPark {
		e.settle(t, w, &Entry{State: Parked, Cause: "the daemon stopped during the attempt: outcome unknown"}, nil)
		return
	}
	e.mu.Lock()
	t.attempt--
	e.mu.Unlock()
	e.settle(t, w, &Entry{State: Queued, Cause: "the daemon stopped during the attempt"}, nil)
}

// stamp puts into an entry what every entry of a turn holds.
func (e *Engine) stamp(t *turn, en *Entry) {
	en.Time = time.Now().UTC()
	en.Daemon, en.Epoch = e.opts.Daemon, e.opts.Epoch
	en.Key, en.Thread, en.Lane, en.Hops, en.Opened, en.OpenSeq, en.Attempt = t.key, t.thread, t.lane, t.hops, t.opened, t.openSeq, t.attempt
	if t.wholeSeq != t.openSeq {
		en.Whole = t.wholeSeq
	}
	if !t.firstTry.IsZero() && !en.State.Final() {
		en.FirstTry = &t.firstTry
	}
	if en.Process == nil && !en.State.Final() {
		en.Process = t.process // still to be waited for
	}
}

// record writes the turn's next entry, blocks until it is durable, and moves lastSeq. After an error nothing can be written to the turn:
// it is [triggerd.ErrFenced], which stops the engine, or ctx has ended.
func (e *Engine) record(ctx context.Context, t *turn, en *Entry) error {
	if err := e.sure(ctx); err != nil {
		return err
	}
	return e.write(ctx, t, en)
}

// write is record for who is sure.
func (e *Engine) write(ctx context.Context, t *turn, en *Entry) error {
	e.stamp(t, en)
	seq, err := e.ledger.write(ctx, t.subject, t.lastSeq, en)
	if err != nil {
		e.fail(err)
		return err
	}
	t.lastSeq, en.Seq = seq, seq
	return nil
}

// final records a turn's end, tells who waits for it, and lets the next of its lane go.
func (e *Engine) final(t *turn, w *loaded, s State, cause string, r *triggerd.Result) {
	mark := e.mark()
	en := &Entry{State: s, Cause: cause}
	err := e.keepResult(en, r)
	if err == nil {
		err = e.concluding(e.closing, t, en, w)
	}
	if err == nil {
		err = e.record(e.closing, t, en)
	}
	if err != nil {
		e.warn(t, err, "turn's end is not recorded; its next owner runs it again")
		e.strand(t)
		return
	}
	failpoint.Hit(failpoint.AfterRecord)
	e.stats.final(en.State)
	if en.State == Dead {
		e.warn(t, nil, "turn is dead")
	}
	// The mark stays until everybody knows, so a crash before that makes the next start tell it.
	if err := e.tell(e.closing, infoOf(en)); err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.board.remove(t)
	e.sawLocked(t)
	e.low.unmark(mark)
	if t.finished != nil {
		close(t.finished)
	}
	e.wakeLocked()
}

// settle records an unfinished state after an attempt and gives the slot back.
func (e *Engine) settle(t *turn, w *loaded, en *Entry, r *triggerd.Result) {
	mark := e.mark()
	err := e.keepResult(en, r)
	if err == nil {
		err = e.record(e.closing, t, en)
	}
	if err != nil {
		e.warn(t, err, "turn's state is not recorded; its next owner runs it again")
		e.strand(t)
		return
	}
	e.mu.Lock()
	if t.cancelled { // asked for after the attempt had ended, answered by its end
		e.low.unmark(mark)
		e.mu.Unlock()
		e.final(t, w, Cancelled, ErrCancelled.Error(), r)
		return
	}
	t.wake = time.Time{}
	if en.NotBefore != nil {
		t.wake = *en.NotBefore
	}
	e.board.settle(t, en.State)
	e.sawLocked(t)
	e.wakeLocked()
	e.mu.Unlock()
	if en.State == Parked && e.tell(e.closing, infoOf(en)) != nil {
		return // the mark stays: the next start tells it
	}
	e.unmark(mark)
}

// keepResult puts what an attempt left behind into its entry. All of an output that is too long for the entry goes to a blob.
func (e *Engine) keepResult(en *Entry, r *triggerd.Result) error {
	if r == nil {
		return nil
	}
	kept := *r
	out := e.opts.Redact(bytes.Clone(r.Output)) // it may be a part of the event, which stays as it is
	if kept.Output = nil; kept.Bytes == 0 {
		kept.Bytes = int64(len(out))
	}
	kept.ContentType = cut(kept.ContentType, maxContentType)
	en.Result = &kept
	en.body[partOutput] = out[:min(len(out), OutputMax)]
	if len(out) <= OutputMax {
		return nil
	}
	for {
		name, err := e.opts.Bus.PutBlob(e.closing, out)
		if err == nil {
			en.Parts[partOutput].Blob = name
			return nil
		}
		if !bus.Pause(e.closing, writePause) {
			return err
		}
	}
}

const (
	maxCause       = 2 << 10 // one line for people
	maxContentType = 256
)

// cause makes a text fit to be an entry's cause: without secrets, and bounded, so that no action can make an entry too large to be stored.
func (e *Engine) cause(s string) string { return cut(string(e.opts.Redact([]byte(s))), maxCause) }

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// tell reports a final or parked turn until that worked or ctx ends.
func (e *Engine) tell(ctx context.Context, i Info) error {
	for {
		err := e.opts.OnFinal(ctx, i)
		if err == nil {
			return nil
		}
		if !bus.Pause(ctx, writePause) {
			return fmt.Errorf("report turn %s: %w", i.Key, err)
		}
	}
}

// release gives back a turn that was not started because the engine is stopping; no entry says so.
func (e *Engine) release(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.board.settle(t, Queued)
}

// forget drops a turn that somebody else owns now.
func (e *Engine) forget(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.board.remove(t)
}
