package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/turns"
)

const (
	// shareEvery is how often a daemon looks whether there is something to take or to give when it hears of no change.
	shareEvery = 250 * time.Millisecond
	// shareSettle is how long the daemons must have been the same before work is moved just for balance.
	shareSettle = 2 * time.Second
	// againAfter is the wait before something is taken again that could not be started.
	againAfter = time.Second
	// startsMax bounds what is started at once.
	startsMax = 8
)

// share is this daemon's part in the work of all daemons on an external NATS. Everything that must have one owner has a lease: the inbox and source of each
// connection, each partition of turns, the care for the history. A lease is written when it changes hands; that its owner lives is said by one
// heartbeat for all of them. Every daemon works out for itself, from the same table, who is to own what.
type share struct {
	d        *Daemon
	bus      *bus.Bus
	log      zerolog.Logger
	session  *session
	table    *table
	follower *turns.Follower
	slots    *turns.Slots

	kick    chan struct{}
	settled chan struct{} // closed when this daemon first has what it is to have
	starts  chan struct{} // one element for each start under way

	taken      taken
	unreleased atomic.Int64 // leases that were given up without NATS

	mu      sync.Mutex
	held    map[string]*holding  // by key of the lease
	wait    map[string]time.Time // not before: what could not be started
	leaving bool
	daemons string    // who took part at the last step
	since   time.Time // when that changed last
	lonely  time.Time // since when nobody has the newest configuration; zero = somebody has
	standby string    // why nothing is taken
}

func (d *Daemon) newShare(self member) *share {
	s := &share{
		d: d, bus: d.bus, log: d.log, table: newTable(d.bus, d.log), follower: turns.NewFollower(d.bus, d.log),
		slots: turns.NewSlots(d.plan.Load().config.Server.Concurrency),
		kick:  make(chan struct{}, 1), settled: make(chan struct{}), starts: make(chan struct{}, startsMax),
		held: map[string]*holding{}, wait: map[string]time.Time{},
	}
	s.session = newSession(d.bus, self, s.peers, s.table.heard)
	s.session.starting = s.starting
	s.table.changed = s.wake
	s.table.paused = s.loadPause
	s.table.reload = s.reloaded
	return s
}

func (s *share) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// peers reports whether another daemon is alive, or may be.
func (s *share) peers() bool {
	select {
	case <-s.table.current:
	default:
		return true // nobody knows
	}
	for _, m := range s.table.list() {
		if m.Daemon != s.d.id && !m.Dead && time.Since(m.at) < silence {
			return true
		}
	}
	return false
}

// run takes part until ctx ends, then gives everything away. It blocks until nothing runs here any more. An error says that the others will find out
// by themselves what is theirs now.
func (s *share) run(ctx context.Context) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	defer loops.Wait()
	defer stop()
	loops.Go(func() { s.table.run(life) })
	loops.Go(func() { s.follower.Run(life) })
	loops.Go(func() { s.carry(life) })
	for s.term(ctx) {
		s.d.metrics.lost.Inc()
		s.dropAll()
		s.unreleased.Store(0) // they are free by the end of the membership
	}
	if n := s.unreleased.Load(); n > 0 {
		return fmt.Errorf("%w: %d leases are not handed over; the other daemons take them when this one's silence is noticed", triggerd.ErrUnavailable, n)
	}
	return nil
}

// term takes part from a join on. It reports true when this daemon must join again, false when ctx has ended and everything is given away.
func (s *share) term(ctx context.Context) (again bool) {
	for {
		err := s.join(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.Warn().Err(err).Msg("cannot join the other daemons; trying again")
		bus.Pause(ctx, beatEvery)
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan struct{})
	var why error
	go func() { defer close(lost); why = s.session.keep(keep) }()
	defer func() { stop(); <-lost }()
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for {
		select {
		case <-lost:
			s.log.Warn().Err(why).Msg("other daemons took this one for dead, or might have: it drops its work and joins again")
			return true
		case <-ctx.Done():
			s.leave(keep, lost)
			return false
		case <-tick.C:
		case <-s.kick:
		}
		s.step(ctx)
	}
}

// join makes this daemon known, with the configuration that it has.
func (s *share) join(ctx context.Context) error {
	s.mu.Lock()
	s.since = time.Now()
	s.mu.Unlock()
	r := s.config()
	if err := s.session.change(ctx, func(m *member) { m.Config, m.Generation = r.Version, r.Generation }); err != nil {
		return err
	}
	if err := s.session.join(ctx); err != nil {
		return err
	}
	s.table.rejoined()
	// After the heartbeat: nobody must see a newest configuration that no daemon has.
	if _, err := makeKnown(ctx, s.bus, r, false); err != nil {
		s.session.ended.Store(true)
		return err
	}
	return nil
}

func (s *share) config() configRecord {
	cfg := s.d.plan.Load().config
	return configRecord{Version: cfg.Version(), Generation: cfg.Generation, Daemon: s.d.id, Since: time.Now().UTC()}
}

// configure makes a reloaded configuration known as the newest.
func (s *share) configure(ctx context.Context) error {
	r := s.config()
	if err := s.session.change(ctx, func(m *member) { m.Config, m.Generation = r.Version, r.Generation }); err != nil {
		return err
	}
	defer s.wake()
	_, err := makeKnown(ctx, s.bus, r, true)
	return err
}

// carry keeps what unfinished turns stand on new enough for the history to be cut off, until ctx ends.
func (s *share) carry(ctx context.Context) {
	keep := time.Duration(s.d.plan.Load().config.History.Turns)
	for bus.Pause(ctx, max(min(pruneEvery, keep/4), shareEvery)) {
		for _, e := range s.engines() {
			if err := e.Carry(ctx, time.Now().Add(-keep)); err != nil && ctx.Err() == nil && !errors.Is(err, triggerd.ErrFenced) {
				s.log.Debug().Err(err).Msg("old unfinished turns are not carried yet")
			}
		}
	}
}

// step does what there is to do: declares silent daemons dead, takes what is free and ours to take, gives away what is others'.
func (s *share) step(ctx context.Context) {
	select {
	case <-s.table.current:
	default:
		return
	}
	if me := s.session.me(); !s.table.heardOf(me.Daemon, me.Term) {
		return // what the table says is from before we joined
	}
	if _, known := s.table.newest(); !known {
		return // we have just made the first one known
	}
	s.session.look()
	now := time.Now()
	s.bury(ctx)
	daemons, outdated := s.partners(ctx, now)
	d := s.deal(daemons)
	took := s.takeAll(ctx, d, now)
	s.giveAll(d, now, outdated)
	s.freeStray(ctx, d)
	if !took && len(daemons) > 0 && s.complete(d) {
		select {
		case <-s.settled:
		default:
			close(s.settled)
		}
	}
}

// bury declares daemons dead that were silent for too long. One that beats meanwhile is not: its key has changed then.
func (s *share) bury(ctx context.Context) {
	for _, m := range s.table.list() {
		if !s.session.alive() {
			return // asked before what was heard is looked up: a beat that ends a silence of our own has made everybody else's count anew
		}
		m := s.table.seen(m.Daemon)
		silent := time.Since(m.at)
		switch {
		case m.Daemon == "" || m.Daemon == s.d.id:
		case m.Dead && silent > time.Minute:
			_ = s.bus.Control.Purge(ctx, memberPrefix+m.Daemon, jetstream.LastRevision(m.revision))
		case !m.Dead && silent >= silence:
			dead := m.member
			dead.Dead = true
			short, cancel := context.WithTimeout(ctx, beatEvery)
			if _, err := s.bus.Control.Update(short, memberPrefix+m.Daemon, mustJSON(dead), m.revision); err == nil {
				s.log.Warn().Str("daemon", m.Daemon).Str("host", m.Host).Int("pid", m.PID).Dur("silent", silent).Msg("a daemon is silent: its work is taken over")
			}
			cancel()
		}
	}
}

// partners are the daemons that take part in the work: alive, not leaving, with the newest configuration.
func (s *share) partners(ctx context.Context, now time.Time) (ids []string, outdated bool) {
	newest, _ := s.table.newest()
	me := s.session.me()
	for _, m := range s.table.list() {
		x, heard := m.member, now.Sub(m.at) < silence
		if x.Daemon == s.d.id {
			x, heard = me, s.session.alive()
		}
		if heard && !x.Dead && !x.Leaving && x.Config == newest.Version && x.Generation == newest.Generation {
			ids = append(ids, m.Daemon)
		}
	}
	outdated = me.Config != newest.Version || me.Generation != newest.Generation
	s.note(me, newest, outdated, len(ids) == 0, now)
	if outdated && len(ids) == 0 && s.abandoned(now) && me.Generation >= newest.Generation {
		// Everybody was put back to an older configuration: it is what is wanted.
		if _, err := makeKnown(ctx, s.bus, s.config(), true); err != nil {
			s.log.Warn().Err(err).Msg("cannot make the configuration known; trying again")
		}
	}
	return ids, outdated
}

// note keeps, and logs once, why this daemon takes nothing.
func (s *share) note(me member, newest configRecord, outdated, nobody bool, now time.Time) {
	why := ""
	switch {
	case !outdated:
	case me.Generation < newest.Generation:
		why = fmt.Sprintf("generation %d of the configuration is older than %d, which daemon %s had: this daemon takes over nothing until it has that one", me.Generation, newest.Generation, newest.Daemon)
	default:
		why = fmt.Sprintf("configuration %s is older than %s, which daemon %s has: this daemon takes over nothing until it has that one", me.Config, newest.Version, newest.Daemon)
	}
	s.mu.Lock()
	said := s.standby
	s.standby = why
	switch {
	case !nobody:
		s.lonely = time.Time{}
	case s.lonely.IsZero():
		s.lonely = now
	}
	s.mu.Unlock()
	if why != said && why != "" {
		s.log.Warn().Str("reason", why).Msg("this daemon takes no work")
	}
}

// abandoned reports whether nobody has had the newest configuration for so long that nobody will.
func (s *share) abandoned(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lonely.IsZero() && now.Sub(s.lonely) >= beatEvery
}

// why says why this daemon takes nothing; "" when it would.
func (s *share) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standby
}

// leave gives everything away: connections first, so that nothing new comes, then turns, each partition as soon as its running turns have ended.
func (s *share) leave(ctx context.Context, lost <-chan struct{}) {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.unreleased.Store(0) // what could not be released before was freed since, or is free when this daemon is off the list
	if err := s.session.change(ctx, func(m *member) { m.Leaving = true }); err != nil && !errors.Is(err, triggerd.ErrFenced) {
		s.log.Debug().Err(err).Msg("the others do not know yet that this daemon leaves")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.stopAll(func(h *holding) bool { return strings.HasPrefix(h.key, connectionLease) })
		s.stopAll(func(*holding) bool { return true })
	}()
	select {
	case <-done:
	case <-lost:
		s.fenceAll()
		<-done
	}
	s.session.ended.Store(true)
	s.session.leave()
}

// dropAll ends everything at once: it is other daemons' now.
func (s *share) dropAll() {
	s.fenceAll()
	s.stopAll(func(*holding) bool { return true })
}

func (s *share) fenceAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		h.fence()
	}
}

// stopAll stops holdings and waits until they are put away.
func (s *share) stopAll(which func(*holding) bool) {
	s.mu.Lock()
	var all []*holding
	for _, h := range s.held {
		if which(h) {
			all = append(all, h)
		}
	}
	s.mu.Unlock()
	for _, h := range all {
		h.stop()
	}
	for _, h := range all {
		<-h.done
	}
}
