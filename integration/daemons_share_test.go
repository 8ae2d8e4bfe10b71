package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Limits of a hand-over, as an outside observer sees it: no action begins for so long.
const (
	afterKill    = 8 * time.Second
	afterRelease = time.Second
)

// battle is a fleet under load, and what is done to it.
type battle struct {
	*fleet
	flow  *flow
	log   *effectLog
	blows []blow
	least int // changes of the owner that the blows made necessary
	most  int // and those that they may explain
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

// over waits until somebody works again, and ends the blow. A cluster may need several rounds for the elections after the loss of a server.
func (b *battle) over(after time.Time) {
	b.t.Helper()
	b.flow.newEffect(b.log, after, 45*time.Second)
	b.blows[len(b.blows)-1].until = time.Now()
}

// changes notes that the owner had to change, or may have: a change without need costs a pause and repeats.
func (b *battle) changes(least, most int) { b.least, b.most = b.least+least, b.most+most }

func (b *battle) killOwner() {
	m := b.owner()
	b.strike("kill of the owner", true, afterKill, m.p.kill)
	died := time.Now()
	await(b.t, "the standbys accept events while nobody owns", 4*time.Second, func() bool { return b.flow.acceptedSince(died) >= 20 })
	b.over(died)
	b.changes(1, 1)
	m.restart()
}

func (b *battle) killStandby() {
	m := b.standby(b.owner())
	b.strike("kill of a standby", false, afterRelease, m.p.kill)
	b.over(time.Now())
	m.restart()
}

// stopOwner is a SIGTERM while no long action runs.
func (b *battle) stopOwner() {
	m := b.owner()
	b.strike("SIGTERM to the owner", false, afterRelease, func() { m.p.stop() })
	b.over(b.blows[len(b.blows)-1].at)
	<-time.After(afterRelease) // what the successor does belongs to this blow
	b.blows[len(b.blows)-1].until = time.Now()
	b.changes(1, 1)
	m.restart()
}

// freezeOwner freezes for less than a lease lasts, or for longer, or for about as long.
func (b *battle) freezeOwner(length time.Duration) {
	m := b.owner()
	b.strike(fmt.Sprintf("freeze of the owner: %s", length.Round(time.Millisecond)), length > 2*time.Second, 0, m.freeze)
	<-time.After(length)
	m.thaw()
	b.over(time.Now())
	switch {
	case length > 6500*time.Millisecond:
		b.changes(1, 1)
	case length > 3500*time.Millisecond:
		b.changes(0, 1)
	}
}

// Three daemons on one NATS server: whatever happens to them, every event has one final turn for each trigger, in order within its thread.
func TestDaemonsShareOneNATS(t *testing.T) {
	server := newNATS(t, nil)
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 3, on(server.url()), fleetConfig(log))
	b := &battle{fleet: f, log: log, flow: startFlow(f, 50, 50*time.Millisecond)}
	plan := []func(){
		b.killOwner, b.killOwner, b.killStandby, b.killStandby, b.stopOwner, b.stopOwner,
		func() { b.freezeOwner(time.Second + rand.N(time.Second)) },
		func() { b.freezeOwner(4*time.Second + rand.N(2*time.Second)) }, // about when the lease is lost
		func() { b.freezeOwner(7*time.Second + rand.N(time.Second)) },
	}
	rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	began := time.Now()
	for _, strike := range plan {
		strike()
	}
	b.finish(began)
}

// finish ends the load, checks everything, and tells what was measured.
func (b *battle) finish(began time.Time) {
	b.t.Helper()
	b.flow.stop()
	repeated := checkFleet(b.fleet, b.flow, b.log, b.blows)
	worst := pauses(b.t, b.log, b.blows)
	b.agreed()
	changed := b.takeovers()
	if changed < b.least || changed > b.most {
		b.t.Errorf("the owner has changed %d times, want %d to %d", changed, b.least, b.most)
	}
	for _, m := range b.members {
		m.p.stop()
	}
	b.t.Logf("%d events over 50 threads in %s, %d posts sent again; %d changes of the owner; %d effects repeated; longest pause after each kind of blow: %v",
		len(b.flow.ids()), time.Since(began).Round(time.Second), b.flow.refusals, changed, repeated, worst)
	for _, x := range b.blows {
		b.t.Logf("%s %s, over after %s", x.at.Format("15:04:05.000"), x.what, x.until.Sub(x.at).Round(time.Millisecond))
	}
}

// The same on a cluster of three servers with three replicas, whose stream leaders are killed, and the owner with them.
func TestDaemonsShareOneCluster(t *testing.T) {
	c := newCluster(t, 3)
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 3, func(int) string { return c.config() }, fleetConfig(log))
	b := &battle{fleet: f, log: log, flow: startFlow(f, 50, 100*time.Millisecond)}
	began := time.Now()
	streams := []string{"triggerd_TURNS", "triggerd_EVENTS", "KV_triggerd_CONTROL"}
	killLeader := func(stream string) {
		c.awaitReplicas(stream)
		leader := c.leader(stream)
		b.strike("kill of the leader of "+stream, true, 0, leader.kill)
		b.over(time.Now())
		b.changes(0, 1)
		leader.restart(c)
	}
	for i, stream := range streams {
		killLeader(stream)
		if i == 0 {
			b.killOwner()
		}
		if i == 1 {
			b.stopOwner()
		}
	}
	b.finish(began)
}
