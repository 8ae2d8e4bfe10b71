package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Limits of a hand-over, as an outside observer sees it: so long may an accepted event wait for its effect.
const (
	afterKill    = 8 * time.Second
	afterRelease = time.Second
	// What a new owner creates and writes first needs a round of the replicas each, on servers one of which was killed and has just come back.
	clusterSlack = 4 * time.Second
)

// battle is a fleet under load, and what is done to it.
type battle struct {
	*fleet
	flow  *flow
	ticks *flow
	log   *effectLog
	blows []blow
	least int           // daemons that had to be taken for dead because of the blows
	most  int           // and those that may have been
	slack time.Duration // added to the limits once a server was killed
	calm  func()        // waits until NATS has its replicas again
}

// full reports whether the battles are fought in their full length, of some minutes; see doc.go.
func full() bool { return os.Getenv("TRIGGERD_TEST_FULL") != "" }

func newBattle(t *testing.T, nats func(int) string, every time.Duration) *battle {
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 3, nats, fleetConfig(log))
	return &battle{fleet: f, log: log, calm: func() {}, flow: startFlow(f, 50, every), ticks: startTicks(f, 200*time.Millisecond)}
}

// startTicks posts a tick at each interval, twice at a time and to different daemons: as a schedule with several owners would.
func startTicks(f *fleet, every time.Duration) *flow {
	const thread = 50
	l := &flow{f: f, accepted: map[string]time.Time{}, numbers: map[string]int{}}
	ended := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { l.send(thread, n) })
			}
			both.Wait()
		}
	})
	l.stop = sync.OnceFunc(func() { close(ended); loop.Wait() })
	f.t.Cleanup(l.stop)
	return l
}

// shortEffects are those of an outside world that takes its time, but not long.
func shortEffects(string, int) time.Duration { return rand.N(15 * time.Millisecond) }

// strike lets a burst of events go, does something in the middle of it, and lets more go while the daemons are busy with that.
func (b *battle) strike(what string, cuts bool, limit time.Duration, do func()) {
	b.t.Helper()
	began := time.Now()
	b.flow.burst(30)
	await(b.t, "the burst takes effect", 10*time.Second, func() bool { return len(b.log.since(began)) >= 10 })
	<-time.After(rand.N(20 * time.Millisecond)) // anywhere in what they do
	at := time.Now()
	do()
	b.flow.burst(20)
	b.blows = append(b.blows, blow{what: what, at: at, cuts: cuts, limit: limit})
}

// over waits until everything that was accepted by now has taken effect, and ends the blow: what comes after may wait for another one. A cluster may
// need several rounds for the elections after the loss of a server.
func (b *battle) over() {
	b.t.Helper()
	x := &b.blows[len(b.blows)-1]
	x.until = time.Now()
	owed := slices.Concat(slices.Collect(maps.Keys(b.flow.ids())), slices.Collect(maps.Keys(b.ticks.ids())))
	await(b.t, "what was accepted takes effect", 45*time.Second, func() bool {
		done := b.log.keys()
		return !slices.ContainsFunc(owed, func(id string) bool { return done["in:work:"+id] == 0 })
	})
	x.took = time.Since(x.at)
}

// dead notes how many daemons had to be taken for dead, or may have been: one too many costs a pause and repeats.
func (b *battle) dead(least, most int) { b.least, b.most = b.least+least, b.most+most }

// victim is some daemon that has work.
func (b *battle) victim() *member {
	b.t.Helper()
	b.calm()
	m := b.random()
	await(b.t, "the daemon has its share", 20*time.Second, func() bool { return m.self().Partitions > 0 })
	return m
}

// kill is a kill -9. The daemon is started again when the others have taken its work over, or at once: then it is a new one, and they still have to.
func (b *battle) kill(atOnce bool) {
	m, before, what := b.victim(), b.declaredDead(), "kill"
	if atOnce {
		what = "kill and restart"
	}
	b.strike(what, true, afterKill+b.slack, m.p.kill)
	if atOnce {
		m.restart()
	}
	await(b.t, "its work is taken over", afterKill+b.slack, func() bool { return b.declaredDead() > before })
	b.over()
	b.dead(1, 1)
	if !atOnce {
		m.restart()
	}
}

// killWhileFrozen kills one daemon while another one is frozen for longer than others wait: who is left has all the work, and then shares it again.
func (b *battle) killWhileFrozen() {
	m := b.victim()
	b.strike("freeze, and kill of another", true, 0, m.freeze)
	<-time.After(rand.N(4 * time.Second))
	b.blows[len(b.blows)-1].until = time.Now() // what comes after has a limit, and who waits for the frozen one as well
	other := b.other(m)
	b.strike("kill beside a frozen one", true, afterKill+b.slack, other.p.kill)
	<-time.After(7 * time.Second)
	m.thaw()
	b.over()
	b.dead(2, 2)
	other.restart()
	b.agreed()
}

// stop is a SIGTERM while no long action runs.
func (b *battle) stop() {
	m := b.victim()
	b.strike("SIGTERM", false, afterRelease+b.slack, func() { m.p.stop() })
	b.flow.burst(20)
	<-time.After(afterRelease) // what the others do in this time belongs to the blow
	b.over()
	m.restart()
}

// freeze freezes for less than others wait, or for longer, or for about as long.
func (b *battle) freeze(length time.Duration) {
	m := b.victim()
	said := len(m.p.lines(lostMembership))
	b.strike(fmt.Sprintf("freeze: %s", length.Round(time.Millisecond)), length > 2*time.Second, 0, m.freeze)
	<-time.After(length)
	m.thaw()
	b.over()
	switch {
	case length > 6500*time.Millisecond:
		b.dead(1, 1)
	case length > 3500*time.Millisecond:
		b.dead(0, 1)
	}
	b.agreed() // it may only notice now that it was taken for dead
	if n := len(m.p.lines(lostMembership)) - said; n > 1 || n == 0 && length > 6500*time.Millisecond {
		b.t.Errorf("after a freeze of %s the daemon has said %d times that it was taken for dead", length, n)
	}
}

// rounds are n blows of each kind, and freezes of all lengths between 1 and 8 s.
func (b *battle) rounds(kills, stops, freezes int) (plan []func()) {
	for i := range kills {
		plan = append(plan, func() { b.kill(i%3 == 1) })
	}
	for range stops {
		plan = append(plan, b.stop)
	}
	for i := range freezes {
		step := 7 * time.Second / time.Duration(freezes)
		length := time.Second + time.Duration(i)*step + rand.N(step)
		plan = append(plan, func() { b.freeze(length) })
	}
	rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	return plan
}

// Three daemons on one NATS server: whatever happens to them, every event has one final turn for each trigger, in order within its thread.
func TestDaemonsShareOneNATS(t *testing.T) {
	server := newNATS(t, nil)
	b := newBattle(t, on(server.url()), 50*time.Millisecond)
	plan := b.rounds(3, 2, 4)
	if full() {
		plan = append(b.rounds(15, 5, 10), b.killWhileFrozen, b.killWhileFrozen)
	}
	b.fight(plan)
}

func (b *battle) fight(plan []func()) {
	b.t.Helper()
	began := time.Now()
	for _, strike := range plan {
		strike()
		if b.t.Failed() {
			return
		}
	}
	if full() {
		b.flow.burst(max(0, 2000-len(b.flow.ids())))
		await(b.t, "there are enough events and ticks", 5*time.Minute, func() bool { return len(b.flow.ids()) >= 2000 && len(b.ticks.ids()) >= 200 })
	}
	b.finish(began)
}

// finish ends the load, checks everything, and tells what was measured.
func (b *battle) finish(began time.Time) {
	b.t.Helper()
	ticks := len(b.ticks.ids())
	all := stopAll(b.flow, b.ticks)
	repeated := checkFleet(b.fleet, all, b.log, b.blows)
	worst := waits(b.t, all, b.log, b.blows)
	b.agreed()
	dead := b.declaredDead()
	if dead < b.least || dead > b.most {
		b.t.Errorf("%d daemons were taken for dead, want %d to %d", dead, b.least, b.most)
	}
	for _, m := range b.members {
		m.p.stop()
	}
	b.t.Logf("%d events over 50 threads and %d ticks in %s, %d posts sent again; %d daemons taken for dead; %d effects repeated; longest wait for an effect after each kind of blow: %v",
		len(all.ids())-ticks, ticks, time.Since(began).Round(time.Second), all.refusals, dead, repeated, worst)
	for _, x := range b.blows {
		b.t.Logf("%s %s, over after %s, longest wait %s", x.at.Format("15:04:05.000"), x.what, x.took.Round(time.Millisecond), x.worst.Round(time.Millisecond))
	}
}

// The same on a cluster of three servers with three replicas, whose stream leaders are killed, and daemons with them.
func TestDaemonsShareOneCluster(t *testing.T) {
	c := newCluster(t, 3)
	b := newBattle(t, func(int) string { return c.config() }, 100*time.Millisecond)
	streams := []string{"triggerd_TURNS", "triggerd_EVENTS", "KV_triggerd_CONTROL"}
	b.calm = func() { // what a blow to a daemon costs is not mixed with the return of a server
		for _, s := range streams {
			c.awaitReplicas(s)
		}
	}
	killLeader := func(stream string) func() {
		return func() {
			c.awaitReplicas(stream)
			leader := c.leader(stream)
			b.strike("kill of the leader of "+stream, true, 0, leader.kill)
			died := b.blows[len(b.blows)-1].at
			await(b.t, "events are accepted without the leader", 45*time.Second, func() bool { return b.flow.acceptedSince(died) >= 20 })
			b.over()
			b.slack = clusterSlack
			b.dead(0, 1)
			leader.restart(c)
		}
	}
	kill := func() { b.kill(false) }
	plan := []func(){b.stop, kill, killLeader(streams[0]), kill, killLeader(streams[1]), b.stop, killLeader(streams[2])}
	if full() {
		plan = append(plan, killLeader(streams[0]), killLeader(streams[2]))
		plan = append(plan, b.rounds(15, 3, 10)...)
		rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	}
	b.fight(plan)
}
