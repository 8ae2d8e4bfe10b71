package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Recovered says what a start found.
type Recovered struct {
	Read       int // entries that were read
	Unfinished int // turns that go on
	CutShort   int // of them, attempts that were under way
	Finals     int // ends that had to be told (again)
}

// history is what the ledger holds of one turn since the checkpoint.
type history struct {
	last *Entry
}

// Recover rebuilds the queue from the ledger: call it once, before Run and before anything opens turns, and after [Engine.SetTriggers].
// It blocks until what a crash left half done is settled: ends that were not told are told, attempts that were cut short follow
// their trigger's on_crash.
func (e *Engine) Recover(ctx context.Context) (Recovered, error) {
	cp, err := e.usableCheckpoint(ctx)
	if err != nil {
		return Recovered{}, err
	}
	r, found, err := e.readLedger(ctx, cp)
	if err != nil {
		return r, err
	}
	if err := e.loadPauses(ctx); err != nil {
		return r, err
	}
	if !e.opts.Shared {
		if err := e.LoadLanes(ctx, "*"); err != nil {
			return r, err
		}
	}
	if e.opts.Bus.External() {
		if err := e.claimAll(ctx, found); err != nil {
			return r, err
		}
	}
	unfinished, err := e.settleFinals(ctx, cp, found, &r)
	if err != nil {
		return r, err
	}
	if err := e.readmit(ctx, cp, unfinished, &r); err != nil {
		return r, err
	}
	e.mu.Lock()
	r.Unfinished = len(e.board.turns)
	e.recovered = true
	e.mu.Unlock()
	// From here on an older owner's checkpoint is refused.
	return r, e.saveCheckpoint(ctx)
}

// usableCheckpoint is the last checkpoint, or one that makes the start read everything when it cannot belong to this ledger.
func (e *Engine) usableCheckpoint(ctx context.Context) (checkpoint, error) {
	cp, err := e.loadCheckpoint(ctx)
	if err != nil {
		return cp, err
	}
	if cp.Epoch > e.opts.Epoch {
		return cp, fmt.Errorf("read turns checkpoint of epoch %d: %w", cp.Epoch, triggerd.ErrFenced)
	}
	info, err := e.opts.Bus.Turns.Info(ctx)
	if err != nil {
		return cp, fmt.Errorf("read turns: %w: %w", triggerd.ErrUnavailable, err)
	}
	if end := info.State.LastSeq + 1; cp.Told > end {
		// The server has lost the newest entries (a power loss without group sync), and gives their numbers to other entries.
		e.log.Warn().Uint64("lost_from", end).Uint64("had", cp.Told-1).Msg("the newest turn entries are gone: reading all turns")
		cp = checkpoint{Told: end}
	}
	return cp, nil
}

func (e *Engine) readLedger(ctx context.Context, cp checkpoint) (r Recovered, found map[string]*history, err error) {
	seen := cp.Told - min(1, cp.Told)
	for try := 1; ; try++ {
		end, err := e.newest(ctx)
		if err != nil {
			return r, nil, fmt.Errorf("read turns: %w", err)
		}
		found, r.Read = map[string]*history{}, 0
		if end >= cp.Floor {
			if err = e.scanFrom(ctx, cp.Floor, found, &r, &seen); err != nil {
				return r, nil, fmt.Errorf("read turns: %w", err)
			}
		}
		if e.opts.Part == nil || end < cp.Floor || seen >= end || try == scanTries {
			break
		}
		bus.Pause(ctx, writePause) // it was read from a replica that is behind
	}
	for _, hash := range cp.Older {
		last, err := e.lastUntil(ctx, hash)
		if err != nil {
			return r, nil, fmt.Errorf("read turns: %w", err)
		}
		if last != nil {
			last.body = [parts][]byte{}
			found[hash] = &history{last: last} // it may be newer than an opening that was not read, so it moves seen not
		}
		r.Read++
	}
	e.mu.Lock()
	e.low.seen, e.position = seen, seen
	e.mu.Unlock()
	return r, found, nil
}

// scanTries bounds the readings of a partition whose newest entry does not come: it may be one that nobody can read.
const scanTries = 5

// newest is the sequence of the newest entry of the engine's turns, as the leader has it: a partition in which there is nothing to read costs no reader.
func (e *Engine) newest(ctx context.Context) (uint64, error) {
	if e.opts.Part == nil {
		return math.MaxUint64, nil
	}
	m, err := e.opts.Bus.Last(ctx, e.opts.Bus.Turns, e.scope())
	if err != nil || m == nil {
		return 0, err
	}
	return m.Sequence, nil
}

// scanFrom notes the newest entry of each turn from a sequence on.
func (e *Engine) scanFrom(ctx context.Context, from uint64, found map[string]*history, r *Recovered, seen *uint64) error {
	return e.ledger.scan(ctx, bus.ScanOptions{From: from, Filter: e.scope()}, func(en *Entry) {
		h := en.Key.Hash()
		if found[h] == nil {
			found[h] = &history{}
		}
		found[h].last = en
		r.Read++
		*seen = max(*seen, en.Seq)
	})
}

// scope matches the turns that the engine runs.
func (e *Engine) scope() string {
	if e.opts.Part == nil {
		return e.opts.Bus.Names.AllTurns()
	}
	return e.opts.Bus.Names.TurnsOf(e.opts.Part.String())
}

// settleFinals tells the ends that were not told, oldest first.
// It returns the turns that go on, oldest first.
func (e *Engine) settleFinals(ctx context.Context, cp checkpoint, found map[string]*history, r *Recovered) ([]*Entry, error) {
	var open, ended []*Entry
	for _, h := range found {
		if !h.last.State.Final() {
			open = append(open, h.last)
			continue
		}
		if h.last.Seq >= cp.Told {
			ended = append(ended, h.last)
		}
	}
	slices.SortFunc(ended, func(a, b *Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, en := range ended {
		if err := e.tell(ctx, infoOf(en)); err != nil {
			return nil, err
		}
	}
	r.Finals += len(ended)
	slices.SortFunc(open, func(a, b *Entry) int { return cmp.Compare(a.OpenSeq, b.OpenSeq) })
	return open, nil
}

// claimAll claims what is unfinished, several turns at a time.
func (e *Engine) claimAll(ctx context.Context, found map[string]*history) error {
	const workers = 64
	work := make(chan *history)
	loops := make([]func() error, workers)
	for i := range loops {
		loops[i] = func() error {
			var errs error
			for h := range work {
				last, err := e.claim(ctx, h.last)
				if err != nil {
					errs = err
					continue
				}
				h.last = last
			}
			return errs
		}
	}
	go func() {
		defer close(work)
		for _, h := range found {
			if !h.last.State.Final() {
				work <- h
			}
		}
	}()
	return together(loops)
}

// claim writes an entry that makes a former owner's next write refused: on an external NATS it may still be alive. What that owner has written
// meanwhile counts. It returns the turn's newest entry.
func (e *Engine) claim(ctx context.Context, last *Entry) (*Entry, error) {
	for {
		if last.Epoch > e.opts.Epoch {
			return nil, fmt.Errorf("claim turn %s: %w", last.Key, triggerd.ErrFenced)
		}
		t := turnOf(last)
		en := &Entry{
			State: last.State, Claimed: true, Undecided: last.Undecided, Queues: last.Queues, Since: last.since(), Cause: last.Cause, NotBefore: last.NotBefore,
			Process: last.Process, OnCrash: last.OnCrash,
		}
		if err := e.sure(ctx); err != nil {
			return nil, err
		}
		e.stamp(t, en)
		if last.NotBefore != nil {
			at := backoffLeft(last, en.Time)
			en.NotBefore = &at
		}
		seq, err := e.ledger.write(ctx, t.subject, t.lastSeq, en)
		if err == nil {
			en.Seq, en.Subject = seq, t.subject
			return en, nil
		}
		if !errors.Is(err, triggerd.ErrFenced) {
			return nil, err
		}
		now, err := e.lastUntil(ctx, t.hash)
		switch {
		case err != nil:
			return nil, err
		case now == nil || now.Epoch > e.opts.Epoch:
			return nil, fmt.Errorf("claim turn %s: %w", t.key, triggerd.ErrFenced)
		case now.State.Final():
			return now, nil
		}
		last = now
	}
}

// readmit puts unfinished turns back on the board. Attempts that were cut short follow their trigger's on_crash.
func (e *Engine) readmit(ctx context.Context, cp checkpoint, open []*Entry, r *Recovered) error {
	var over []func() error // what needs the end of an earlier attempt's process
	for _, last := range open {
		t := turnOf(last)
		e.mu.Lock()
		spec := e.board.queue(t.key.Trigger).spec
		e.mu.Unlock()
		if !t.wake.IsZero() {
			t.wake = backoffLeft(last, time.Now())
		}
		switch {
		case last.Undecided:
			e.mu.Lock()
			e.meetLocked(t, nil)
			e.mu.Unlock()
			continue
		case last.State == Parked && last.since() >= cp.Told:
			r.Finals++
			if err := e.tell(ctx, infoOf(last)); err != nil {
				return err
			}
		case last.State != Running:
		case spec != nil && spec.OnCrash == OnCrashPark || spec == nil && last.OnCrash == OnCrashPark:
			r.CutShort++
			over = append(over, e.park(ctx, t, "the daemon died during the attempt: outcome unknown"))
			continue
		case spec != nil && t.attempt >= spec.Retry.Attempts:
			r.CutShort++
			over = append(over, e.giveUp(ctx, t, fmt.Sprintf("the daemon died during attempt %d of %d: no attempt left", t.attempt, spec.Retry.Attempts)))
			continue
		default:
			r.CutShort++
			t.state = Queued
		}
		e.mu.Lock()
		e.putLocked(t)
		e.mu.Unlock()
	}
	return together(over)
}

// together runs fs at the same time, because each may wait for a process to end.
func together(fs []func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// park leaves the turn to an operator. Its process is gone when that is said.
func (e *Engine) park(ctx context.Context, t *turn, cause string) func() error {
	return func() error {
		if err := e.goneUntil(ctx, t); err != nil {
			return err
		}
		t.state = Parked
		en := &Entry{State: Parked, Cause: cause}
		if err := e.record(ctx, t, en); err != nil {
			return err
		}
		if err := e.tell(ctx, infoOf(en)); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.putLocked(t)
		return nil
	}
}

func (e *Engine) giveUp(ctx context.Context, t *turn, cause string) func() error {
	return func() error {
		if err := e.goneUntil(ctx, t); err != nil {
			return err
		}
		w, err := e.whole(ctx, t)
		if errors.Is(err, triggerd.ErrUnavailable) {
			return fmt.Errorf("read turn %s: %w", t.key, err)
		}
		en := &Entry{State: Dead, Cause: cause}
		if err := e.concluding(ctx, t, en, w); err != nil {
			return err
		}
		if err := e.record(ctx, t, en); err != nil {
			return err
		}
		e.stats.final(Dead)
		return e.tell(ctx, infoOf(en))
	}
}

// goneUntil is Options.WaitGone for a start.
func (e *Engine) goneUntil(ctx context.Context, t *turn) error {
	if t.process == nil {
		return nil
	}
	if err := e.opts.WaitGone(ctx, *t.process); err != nil {
		return fmt.Errorf("turn %s: %w", t.key, err)
	}
	t.process = nil
	return nil
}

// turnOf rebuilds what is kept in memory from a turn's newest entry.
func turnOf(en *Entry) *turn {
	t := &turn{
		key: en.Key, hash: en.Key.Hash(), subject: en.Subject, thread: en.Thread, lane: en.Lane, opened: en.Opened, hops: en.Hops, queues: en.Queues,
		openSeq: en.OpenSeq, wholeSeq: wholeSeq(en), lastSeq: en.Seq, state: en.State, attempt: en.Attempt, process: en.Process,
	}
	if en.FirstTry != nil {
		t.firstTry = *en.FirstTry
	}
	if en.NotBefore != nil && (en.State == Failed || en.State == Held) {
		t.wake = *en.NotBefore
	}
	return t
}

// backoffLeft is when the backoff of an entry ends by our clock. Its writer's may have been an hour ahead of ours, or ours was set back since: then it lasts
// as long from now on as the writer had planned, and no longer.
func backoffLeft(en *Entry, now time.Time) time.Time {
	return now.Add(min(en.NotBefore.Sub(now), en.NotBefore.Sub(en.Time)))
}
