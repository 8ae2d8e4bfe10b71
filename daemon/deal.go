package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/turns"
)

// Keys of leases, without their common prefix.
const (
	connectionLease = "connection."
	turnsLease      = "turns."
	historyLease    = "history"
)

// deal is who is to own what.
type deal struct {
	all  map[string]resource
	want map[string]string // owners to be, by key
}

// deal works it out for the daemons that take part.
func (s *share) deal(daemons []string) deal {
	groups := s.resources()
	d := deal{all: map[string]resource{}, want: map[string]string{}}
	labels := map[string]map[string]string{}
	for _, m := range s.table.list() {
		labels[m.Daemon] = m.Labels
	}
	labels[s.d.id] = s.session.me().Labels
	may := func(daemon, pool string) bool { return configs.InPool(labels[daemon], pool) }
	owners := map[string]string{}
	for _, group := range groups {
		for _, r := range group {
			d.all[r.key] = r
			if m, ok := s.table.ownerOf(r.key); ok {
				owners[r.key] = m.Daemon
			}
		}
	}
	for _, group := range groups {
		maps.Copy(d.want, assign(group, owners, daemons, may))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := strings.Join(daemons, " "); now != s.daemons {
		s.daemons, s.since = now, time.Now()
	}
	return d
}

// resources is everything that needs an owner, by kind.
func (s *share) resources() [][]resource {
	p := s.d.plan.Load()
	var conns, parts []resource
	for _, key := range p.connectionKeys() {
		conns = append(conns, resource{key: connectionLease + key, pool: p.config.ConnectionPool(p.nameOf[key])})
	}
	for _, part := range s.parts() {
		parts = append(parts, resource{key: turnsLease + part.String(), pool: part.Pool})
	}
	return [][]resource{conns, parts, {{key: historyLease, pool: turns.DefaultPool}}}
}

// parts are the partitions of every pool that is configured, or ever was.
func (s *share) parts() []turns.Part {
	p := s.d.plan.Load()
	pools := map[string]bool{turns.DefaultPool: true}
	for name := range p.config.Triggers {
		pools[p.config.TriggerPool(name)] = true
	}
	for _, key := range s.table.keys() {
		if part, ok := leasedPart(key); ok {
			pools[part.Pool] = true
		}
	}
	var out []turns.Part
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for n := range turns.Partitions {
			out = append(out, turns.Part{Pool: pool, Number: n})
		}
	}
	return out
}

// leasedPart is the partition that a lease is of.
func leasedPart(key string) (turns.Part, bool) {
	rest, ok := strings.CutPrefix(key, turnsLease)
	pool, number, found := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	return turns.Part{Pool: pool, Number: n}, ok && found && err == nil && n >= 0 && n < turns.Partitions
}

// takeAll takes what is free and ours to take, and starts it. It reports whether anything was taken.
func (s *share) takeAll(ctx context.Context, d deal, now time.Time) bool {
	took := false
	for _, key := range slices.Sorted(maps.Keys(d.want)) {
		if d.want[key] != s.d.id || !s.mayTake(key, now) {
			continue
		}
		l, err := s.take(ctx, key)
		if ctx.Err() != nil {
			break // this daemon leaves, and its leases with it
		}
		if err != nil {
			s.bus.Note(err, "a lease cannot be taken; trying again") // each step says it again while NATS is away
			break                                                    // the others would fail as well
		}
		if l.revision == 0 {
			continue // somebody else was faster
		}
		if _, ok := leasedPart(key); ok {
			s.taken.partitions++
		} else {
			s.taken.others++
		}
		took = true
		s.start(key, l)
	}
	s.sayTaken(now)
	return took
}

// taken is what was taken since that was logged last. It belongs to the goroutine of the steps.
type taken struct {
	partitions, others int
	said               time.Time
}

// sayTaken logs what was taken, once a second at most: where starts fail, the same is taken again and again.
func (s *share) sayTaken(now time.Time) {
	t := &s.taken
	if t.partitions+t.others == 0 || now.Sub(t.said) < time.Second {
		return
	}
	s.log.Info().Int("connections", t.others).Int("partitions", t.partitions).Msg("takes over work")
	s.taken = taken{said: now}
}

// mayTake reports whether a lease is free: nobody's, or of a daemon that is gone, or of our own from a take whose answer was lost.
func (s *share) mayTake(key string, now time.Time) bool {
	owner, owned := s.table.ownerOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.leaving && s.held[key] == nil && !now.Before(s.wait[key]) && (!owned || owner.Daemon == s.d.id) && s.session.alive()
}

// take makes a lease ours on the condition that it is as we know it. A lease without a revision means that it is not.
func (s *share) take(ctx context.Context, key string) (lease, error) {
	have := s.table.lease(key)
	next := lease{Daemon: s.d.id, Term: s.session.me().Term, Epoch: have.Epoch + 1}
	l, err := s.write(ctx, key, have.revision, next)
	if err == nil && have.Epoch > 0 && have.Daemon != s.d.id {
		s.d.metrics.takeovers.Inc()
	}
	if errors.Is(err, triggerd.ErrConflict) {
		return lease{}, nil // the table will say
	}
	return l, err
}

func (s *share) write(ctx context.Context, key string, revision uint64, l lease) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	var err error
	l.revision, err = s.bus.SwapControl(ctx, leasePrefix+key, mustJSON(l), revision)
	switch {
	case err == nil:
		s.table.wrote(key, l)
		return l, nil
	case bus.Conflict(err):
		return lease{}, fmt.Errorf("write lease %s: %w", key, triggerd.ErrConflict)
	}
	return lease{}, fmt.Errorf("write lease %s: %w: %w", key, triggerd.ErrUnavailable, err)
}

// release lets the next owner start at once. It takes nothing away from a later owner. After an error the lease is free when this daemon is off the list.
func (s *share) release(h *holding) error {
	if s.session.ended.Load() {
		return nil // it is free by that
	}
	l := h.lease
	l.Free = true
	var err error
	for range 3 {
		if _, err = s.write(context.Background(), h.key, h.lease.revision, l); err == nil {
			return nil
		}
		if errors.Is(err, triggerd.ErrConflict) && s.table.lease(h.key).revision > h.lease.revision {
			return nil
		}
		bus.Pause(context.Background(), 50*time.Millisecond)
	}
	return err
}

// freeStray frees leases that are ours by the table, and others' to be, though nothing runs on them here: their release failed, or the answer to a take
// was lost. Nobody else could take them while this daemon lives. One that is ours to be is taken again as it is.
func (s *share) freeStray(ctx context.Context, d deal) {
	for _, key := range s.table.keys() {
		owner, owned := s.table.ownerOf(key)
		s.mu.Lock()
		held := s.held[key] != nil
		s.mu.Unlock()
		if !owned || owner.Daemon != s.d.id || held || d.want[key] == s.d.id {
			continue
		}
		l := s.table.lease(key)
		free := l
		free.Free = true
		if _, err := s.write(ctx, key, l.revision, free); err != nil && !errors.Is(err, triggerd.ErrConflict) {
			return // the next step tries again
		}
	}
}

// giveAll hands over what others are to have, and stops what is configured no more.
func (s *share) giveAll(d deal, now time.Time, outdated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !outdated && now.Sub(s.since) < shareSettle {
		return
	}
	excess := map[string]int{} // partitions to give, by pool
	for key, h := range s.held {
		r, known := d.all[key]
		to, anybody := d.want[key]
		switch {
		case !known:
			h.stop()
		case !anybody || to == s.d.id:
		case h.isPart():
			excess[r.pool]++
		default:
			h.stop()
		}
	}
	for pool, n := range excess {
		s.giveParts(pool, n, now)
	}
}

// giveParts hands n partitions of a pool over, whichever are idle first. The caller holds s.mu.
func (s *share) giveParts(pool string, n int, now time.Time) {
	var ready []*holding
	for _, h := range s.held {
		part, ok := leasedPart(h.key)
		switch {
		case !ok || part.Pool != pool:
		case h.giving.Load():
			n--
		case h.running.Load() && !now.Before(h.notBefore):
			ready = append(ready, h)
		}
	}
	idle := func(h *holding) int {
		if p, ok := h.work.(*partition); ok && p.idle() {
			return 0
		}
		return 1
	}
	slices.SortFunc(ready, func(a, b *holding) int { return idle(a) - idle(b) })
	for _, h := range ready[:min(len(ready), max(n, 0))] {
		h.giving.Store(true)
		h.notBefore = now.Add(giveAgain)
		go h.give()
	}
}

// giveAgain is the wait after a hand-over that had to be given up because a turn was running.
const giveAgain = 5 * time.Second

// complete reports whether this daemon has everything that it is to have, as far as it is free, and all of that runs.
func (s *share) complete(d deal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, to := range d.want {
		h := s.held[key]
		if to != s.d.id {
			continue
		}
		if h == nil {
			if owner, owned := s.table.ownerOf(key); !owned || owner.Daemon == s.d.id {
				return false
			}
			continue
		}
		if !h.running.Load() {
			return false
		}
	}
	return true
}
