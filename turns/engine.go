package turns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Engine runs turns. There is one per daemon. Its methods may be called at the same time, but for Recover, which comes first.
type Engine struct {
	opts   Options
	ledger ledger
	log    zerolog.Logger
	logs   logLimit

	work       context.Context // ends when running turns must stop
	stopWork   context.CancelCauseFunc
	closing    context.Context // ends when even recording has to stop
	stopAll    context.CancelFunc
	kick       chan struct{} // something may have become ready
	records    chan struct{} // one element for each turn that is being recorded without a slot
	tidy       chan struct{} // something may have to be held, released or settled
	goroutines sync.WaitGroup
	jobs       chan job       // to workers that wait for one
	idle       atomic.Int32   // workers that wait
	draining   chan struct{}  // closed by Drain
	actions    sync.WaitGroup // attempts whose action has not returned
	pausing    sync.Mutex     // one change of pauses at a time
	moving     chan struct{}  // holds one: one move at a time

	mu       sync.Mutex
	board    *board
	flights  flights
	pauses   map[string]Pause
	lanes    map[string]bool // triggers that ever had turns with lanes, by lanesKey
	stopping bool
	low      lowWater
	lost     []lost
	cached   int64 // bytes of queued turns' payloads in memory
	cacheMax int64

	wholeAfter time.Duration // the age from which a turn's end is written whole
	fenced     error
	position   uint64 // with a Part: up to where its entries are known
	yielding   bool   // nothing starts for a while
	recovered  bool   // the board has everything that is unfinished
	workersMax int32  // workers that wait at once

	checkpoints checkpointer
	stats       stats
}

// New returns an engine that does nothing before [Engine.Recover] and [Engine.Run].
func New(o Options) *Engine {
	o = withDefaults(o)
	e := &Engine{
		opts:    o,
		ledger:  ledger{bus: o.Bus, log: o.Log},
		log:     o.Log,
		kick:    make(chan struct{}, 1),
		tidy:    make(chan struct{}, 1),
		moving:  make(chan struct{}, 1),
		records: make(chan struct{}, recordsMax),

		jobs:     make(chan job),
		draining: make(chan struct{}),

		board:   newBoard(o.Concurrency),
		flights: flights{byKey: map[string]*opening{}, byLane: map[string][]*opening{}},
		pauses:  map[string]Pause{},
		lanes:   map[string]bool{},
		low:     lowWater{marks: map[uint64]int{}},

		cacheMax:   cacheBytes,
		wholeAfter: wholeAfter(o.Retention),
		workersMax: int32(o.Concurrency),
	}
	if o.Part != nil { // it is one of many
		e.cacheMax, e.workersMax = cacheBytes/Partitions, int32(o.Concurrency/Partitions+1)
		e.records = make(chan struct{}, recordsMax/Partitions)
	}
	if o.Slots != nil {
		e.board.limit, e.board.freed = math.MaxInt, o.Slots.give
	}
	e.work, e.stopWork = context.WithCancelCause(context.Background())
	e.closing, e.stopAll = context.WithCancel(context.Background())
	return e
}

// SetTriggers replaces the triggers. Running turns keep what they started with; waiting ones run as their trigger is now.
// Turns of a trigger that is gone are held until it is back or somebody cancels them.
func (e *Engine) SetTriggers(specs map[string]*Spec) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, q := range e.board.queues {
		q.spec = specs[key]
	}
	for key, s := range specs {
		e.board.queue(key).spec = s
	}
	e.wakeLocked()
	signal(e.tidy)
}

// Run starts turns as they become ready, and blocks until ctx ends or another owner has taken over ([triggerd.ErrFenced]).
// Running turns go on; [Engine.Drain] waits for them. Call it once.
func (e *Engine) Run(ctx context.Context) error {
	if e.opts.Follower != nil {
		e.opts.Follower.add(e)
		defer e.opts.Follower.remove(e)
	}
	keep, stop := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { e.housekeep(keep) })
	defer keeper.Wait()
	defer stop()
	defer e.leaveSlots()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wake, err := e.start(time.Now())
		if err != nil {
			return err
		}
		wait := time.Hour
		if !wake.IsZero() {
			wait = max(time.Until(wake), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-e.kick:
		case <-timer.C:
		}
	}
}

// start hands out every turn that may run now and returns when the next backoff ends; zero when none is under way.
func (e *Engine) start(now time.Time) (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fenced != nil || e.stopping || e.yielding {
		e.leaveSlots()
		return time.Time{}, e.fenced
	}
	for t := e.nextLocked(now); t != nil; t = e.nextLocked(now) {
		j := job{turn: t, spec: e.board.queue(t.key.Trigger).spec}
		j.ctx, t.cancel = context.WithCancelCause(e.work)
		j.stop = t.cancel
		e.actions.Add(1)
		select {
		case e.jobs <- j:
		default:
			e.goroutines.Go(func() { e.worker(j) })
		}
	}
	return e.board.nextWake(), nil
}

// nextLocked is the turn that starts now; nil when none may.
func (e *Engine) nextLocked(now time.Time) *turn {
	if e.opts.Slots == nil {
		return e.board.next(now)
	}
	if !e.opts.Slots.take(e) {
		return nil
	}
	t := e.board.next(now)
	if t == nil {
		e.opts.Slots.give()
	}
	return t
}

func (e *Engine) leaveSlots() {
	if e.opts.Slots != nil {
		e.opts.Slots.leave(e)
	}
}

// job is a turn that the board has handed out.
type job struct {
	turn *turn
	spec *Spec
	ctx  context.Context
	stop context.CancelCauseFunc
}

// worker runs a turn, and then others: a goroutine whose stack has grown to what a turn needs is worth keeping. It ends when enough others wait,
// or the engine stops.
func (e *Engine) worker(j job) {
	for {
		e.run(j.ctx, j.turn, j.spec)
		j.stop(nil)
		if e.idle.Add(1) > e.workersMax {
			e.idle.Add(-1)
			return
		}
		select {
		case j = <-e.jobs:
			e.idle.Add(-1)
		case <-e.draining:
			return
		case <-e.closing.Done():
			return
		}
	}
}

// background runs f, which writes entries, so that it ends whatever becomes of the caller. The caller holds the lock.
// The error is [triggerd.ErrUnavailable] when the engine is stopping.
func (e *Engine) background(f func()) error {
	if e.fenced != nil {
		return e.fenced
	}
	if e.stopping {
		return fmt.Errorf("%w: the daemon is stopping", triggerd.ErrUnavailable)
	}
	e.goroutines.Go(f)
	return nil
}

// signal makes sure that the reader of ch looks once more.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (e *Engine) wakeLocked() { signal(e.kick) }

// putLocked takes a turn onto the board.
func (e *Engine) putLocked(t *turn) {
	e.board.add(t)
	if q := e.board.queue(t.key.Trigger); t.state == Held && q.live() || t.state.waits() && q.spec == nil {
		signal(e.tidy) // its trigger has changed since its state was decided
	}
}

const (
	housekeepEvery = time.Second
	// partSaves is how many times rarer the engine of a partition stores its checkpoint: there are many of them.
	partSaves = 5
)

// housekeep does what no request waits for, until ctx ends.
func (e *Engine) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	saves := 0
	if e.opts.Part != nil {
		saves = e.opts.Part.Number // those of one daemon take turns
	}
	for {
		err := e.tidyUp(ctx)
		select {
		case <-ctx.Done():
			return
		case <-e.tidy:
		case <-tick.C:
			if saves++; e.opts.Part == nil || saves%partSaves == 0 {
				err = errors.Join(err, e.saveCheckpoint(ctx))
			}
		}
		if err != nil && ctx.Err() == nil {
			e.opts.Bus.Note(err, "turns: trying again later")
		}
	}
}

// tidyUp brings turns in line with their triggers and pauses.
func (e *Engine) tidyUp(ctx context.Context) error {
	return errors.Join(e.settleLost(ctx), e.endPauses(ctx), e.holdGone(ctx), e.ReleaseHeld(ctx))
}

// Drain stops starting turns, waits for the running ones until ctx ends, then cuts them short and records that; it returns when none is left.
// What was cut short or waits is run by the next daemon. It does not return before every action has: an action that ignores the end of its
// context keeps the daemon.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	if !e.stopping {
		e.stopping = true
		close(e.draining)
		e.wakeLocked()
	}
	e.mu.Unlock()
	done := make(chan struct{})
	go func() { e.goroutines.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		e.stopWork(ErrShutdown)
		e.actions.Wait()
		select {
		case <-done:
		case <-time.After(recordGrace):
			e.stopAll() // the store does not answer: the next start treats them like after a crash
			<-done
		}
	}
	e.stopWork(ErrShutdown)
	e.stopAll()
	e.mu.Lock()
	known := e.fenced == nil && e.recovered // a start that failed half way has no turn on its board: its checkpoint would forget them all
	e.mu.Unlock()
	if !known {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	if err := e.saveCheckpoint(last); err != nil {
		e.log.Debug().Err(err).Msg("the next start reads more")
	}
}

// recordGrace is how long a stop waits for the store to take the last entries, after the actions have stopped.
const recordGrace = 5 * time.Second

// Fence tells the engine that somebody else owns the turns now, or may: its attempts end, nothing more is recorded, and Run returns [triggerd.ErrFenced].
func (e *Engine) Fence() { e.fail(triggerd.ErrFenced) }

// Fenced reports whether somebody else owns the turns.
func (e *Engine) Fenced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fenced != nil
}

// fail makes Run return when a refused write says that somebody else owns the turns now.
func (e *Engine) fail(err error) {
	if !errors.Is(err, triggerd.ErrFenced) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(err)
}

func (e *Engine) failLocked(err error) {
	if e.fenced == nil {
		e.fenced = fmt.Errorf("turns: %w", err)
		e.stopWork(triggerd.ErrFenced)
		e.wakeLocked()
	}
}
