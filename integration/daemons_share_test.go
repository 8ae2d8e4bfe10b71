package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// Limits of a hand-over, as an outside observer sees it: so long may an accepted event wait for its effect.
const (
	afterKill    = 8 * time.Second
	afterRelease = time.Second
	// With three replicas, what a new owner creates and writes first needs a round of the replicas each, on servers that have just come back.
	clusterSlack = 4 * time.Second
)

// battle is a fleet under load, and what is done to it.
type battle struct {
	*fleet
	flow  *flow
	ticks *flow
	log   *effectLog
	blows []blow
	least int // daemons that had to be taken for dead because of the blows
	most  int // and those that may have been
	slack time.Duration
}

// full reports whether the battles are fought in their full length, of some minutes; see doc.go.
func full() bool { return os.Getenv("TRIGGERD_TEST_FULL") != "" }

func newBattle(t *testing.T, nats func(int) string, every time.Duration) *battle {
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 3, nats, fleetConfig(log))
	return &battle{fleet: f, log: log, flow: startFlow(f, 50, every), ticks: startTicks(f, 200*time.Millisecond)}
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

// over waits until everything that was accepted by now has taken effect, and ends the blow. A cluster may need several rounds for the elections
// after the loss of a server.
func (b *battle) over() {
	b.t.Helper()
	owed := b.flow.ids()
	await(b.t, "what was accepted takes effect", 45*time.Second, func() bool {
		done := b.log.keys()
		for id := range owed {
			if done["in:work:"+id] == 0 {
				return false
			}
		}
		return true
	})
	b.blows[len(b.blows)-1].until = time.Now()
}

// dead notes how many daemons had to be taken for dead, or may have been: one too many costs a pause and repeats.
func (b *battle) dead(least, most int) { b.least, b.most = b.least+least, b.most+most }

func (b *battle) kill() {
	m, before := b.random(), b.declaredDead()
	b.strike("kill", true, afterKill+b.slack, m.p.kill)
	await(b.t, "its work is taken over", afterKill+b.slack, func() bool { return b.declaredDead() > before })
	b.over()
	b.dead(1, 1)
	m.restart()
}

// stop is a SIGTERM while no long action runs.
func (b *battle) stop() {
	m := b.random()
	b.strike("SIGTERM", false, afterRelease+b.slack, func() { m.p.stop() })
	b.flow.burst(20)
	<-time.After(afterRelease) // what the others do in this time belongs to the blow
	b.over()
	m.restart()
}

// freeze freezes for less than others wait, or for longer, or for about as long.
func (b *battle) freeze(length time.Duration) {
	m := b.random()
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
	for range kills {
		plan = append(plan, b.kill)
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
		plan = b.rounds(15, 5, 10)
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
		b.t.Logf("%s %s, over after %s", x.at.Format("15:04:05.000"), x.what, x.until.Sub(x.at).Round(time.Millisecond))
	}
}

// The same on a cluster of three servers with three replicas, whose stream leaders are killed, and daemons with them.
func TestDaemonsShareOneCluster(t *testing.T) {
	c := newCluster(t, 3)
	b := newBattle(t, func(int) string { return c.config() }, 100*time.Millisecond)
	b.slack = clusterSlack
	killLeader := func(stream string) func() {
		return func() {
			c.awaitReplicas(stream)
			leader := c.leader(stream)
			b.strike("kill of the leader of "+stream, true, 0, leader.kill)
			b.over()
			b.dead(0, 3)
			leader.restart(c)
		}
	}
	plan := []func(){
		killLeader("triggerd_TURNS"), b.kill, killLeader("triggerd_EVENTS"), b.stop, killLeader("KV_triggerd_CONTROL"),
	}
	if full() {
		plan = append(plan, killLeader("triggerd_TURNS"), killLeader("KV_triggerd_CONTROL"))
		plan = append(plan, b.rounds(15, 3, 10)...)
		rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	}
	b.fight(plan)
}
