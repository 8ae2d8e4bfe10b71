package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// lone is one daemon with the server inside and a clock to step, under load.
type lone struct {
	*fleet
	m      *member
	c      *clock
	log    *effectLog
	ticked *world // once a second
	hourly *world
	r      *retries
	l      *flow
}

func newLone(t *testing.T) *lone {
	d := &lone{log: newEffectLog(t, shortEffects), ticked: newWorld(t), hourly: newWorld(t)}
	d.r = &retries{t: t, w: failing(t), posted: map[string]time.Time{}}
	body := strings.NewReplacer("\nconnections:\n", `
history: { events: 60s }
connections:
  hour: { cron: { schedule: '0 * * * *', timezone: UTC } }
`, "\ntriggers:\n", `
triggers:
  hourly: { connection: hour, overlap: queue, run: { http: { url: `+d.hourly.URL+`, body: "${{ event.id }}" } } }
`).Replace(clockConfig(d.log, d.r.w, d.ticked))
	d.fleet = newGroup(t, 1, func(int) string { return "" }, body, func(_ int, in *installation) { d.c = newClock(t, in) })
	d.m = d.members[0]
	d.l = startFlow(d.fleet, 6, 50*time.Millisecond)
	return d
}

// ticks are the slots of the schedule of a second that have taken effect, in their order.
func (d *lone) ticks() (slots []time.Time) {
	d.t.Helper()
	for _, e := range d.ticked.all() {
		id, ok := strings.CutPrefix(e.key, "tick:beat:")
		if !ok {
			continue
		}
		slot, err := time.Parse(time.RFC3339, id)
		if err != nil {
			d.t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, time.Time.Compare)
	return slots
}

// awaitTick waits for a slot at or after a moment, and returns all slots.
func (d *lone) awaitTick(what string, from time.Time, limit time.Duration) (slots []time.Time) {
	d.t.Helper()
	await(d.t, what, limit, func() bool {
		slots = d.ticks()
		return len(slots) > 0 && !slots[len(slots)-1].Before(from)
	})
	return slots
}

// eachOnce wants every second from the first slot to the last among the slots, once.
func eachOnce(t *testing.T, slots []time.Time) {
	t.Helper()
	for i := 1; i < len(slots); i++ {
		if d := slots[i].Sub(slots[i-1]); d != time.Second {
			t.Errorf("slot %s follows %s", slots[i].Format(time.TimeOnly), slots[i-1].Format(time.TimeOnly))
		}
	}
}

// goesOn wants that a step has not held up the load, and that it wrote its turns by the stepped clock.
func (d *lone) goesOn(stepped time.Time, wrong time.Duration) {
	d.t.Helper()
	d.l.newEffect(d.log, stepped, 5*time.Second)
	now := time.Now()
	await(d.t, "turns end by the stepped clock", 5*time.Second, func() bool {
		return slices.ContainsFunc(d.m.turnsOf("in"), func(x console.TurnInfo) bool { return x.Finished != nil && about(*x.Finished, now, wrong) })
	})
}

// finish checks the load and the ticks, and returns the slots of the schedule of a second.
func (d *lone) finish(began time.Time, blows []blow) []time.Time {
	d.t.Helper()
	d.l.stop()
	repeated := checkFleet(d.fleet, d.l, d.log, blows)
	gap := longestGap(d.log.all(), began, time.Now())
	slowest := d.r.check(d.fleet)
	n := ticksOnce(d.t, d.m, d.ticked, blows)
	d.t.Logf("%d events, %d effects repeated, longest pause %s, slowest of the turns with three failures %s, %d ticks", len(d.l.ids()), repeated, gap, slowest, n)
	return d.ticks()
}

// The wall clock of a single daemon is set back by an hour: no slot fires again, which it says, and when the clock is right again each slot that has passed
// meanwhile fires once.
func TestClockIsSetBack(t *testing.T) {
	if _, err := buildClock(); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // it mostly waits
	d := newLone(t)
	began := time.Now()
	d.awaitTick("three ticks", began.Add(2*time.Second), 10*time.Second)
	d.r.post(d.fleet, "before the step")
	d.c.step(-time.Hour)
	stepped := time.Now()
	await(t, "the source says that the clock was set back", 5*time.Second, func() bool {
		return strings.Contains(d.m.source("tick").Error, "clock is behind the last slot")
	})
	before := d.ticks()
	d.r.post(d.fleet, "after the step")
	d.goesOn(stepped, -time.Hour)
	<-time.After(2 * time.Second)
	if n := len(d.ticks()); n != len(before) {
		t.Errorf("%d slots fired while the clock was behind", n-len(before))
	}
	d.c.step(0)
	right := time.Now()
	d.awaitTick("ticks go on within the time in which the clock is read again", right, 35*time.Second)
	slots := d.finish(began, nil)
	eachOnce(t, slots)
	if gap := longestGap(d.log.all(), stepped, right); gap > noPause {
		t.Errorf("%s without an effect after the step", gap)
	}
}

// The wall clock of a single daemon is set forward by an hour and back: the slots of the last minute before the new time fire, once, a slot of the hour fires
// once, and none of them again when the clock is right again, not in another process either.
func TestClockIsSetForward(t *testing.T) {
	if _, err := buildClock(); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // it mostly waits
	d := newLone(t)
	began := time.Now()
	d.awaitTick("three ticks", began.Add(2*time.Second), 10*time.Second)
	d.r.post(d.fleet, "before the step")
	d.c.step(time.Hour)
	stepped := time.Now()
	ahead := stepped.Add(time.Hour)
	d.r.post(d.fleet, "after the step")
	d.goesOn(stepped, time.Hour)
	d.awaitTick("ticks go on in the new time", ahead.Add(3*time.Second), 10*time.Second)
	if gap := longestGap(d.log.all(), stepped, time.Now()); gap > noPause {
		t.Errorf("%s without an effect after the step", gap)
	}
	<-time.After(time.Until(stepped.Add(16 * time.Second))) // the history has been looked through: each 15 s, from a start before the step on
	d.l.kept(d.fleet)
	newest := ahead.Truncate(time.Hour)
	await(t, "the slot of the hour, within the time in which the clock is read again", 30*time.Second, func() bool { return d.hourly.byKey()["hour:hourly:"+newest.UTC().Format(time.RFC3339)] == 1 })

	d.r.check(d.fleet)
	d.c.step(0)
	blows := []blow{{what: "kill", at: time.Now(), cuts: true}}
	d.m.p.kill()
	last := d.ticks()
	d.m.restart()
	await(t, "the source says that the clock is behind", 5*time.Second, func() bool {
		return strings.Contains(d.m.source("tick").Error, "clock is behind the last slot")
	})
	blows[0].until = time.Now()
	d.goesOn(time.Now(), 0)
	<-time.After(2 * time.Second)
	slots := d.finish(began, blows)
	if len(slots) > len(last)+1 { // one may have been stored and not run
		t.Errorf("%d slots fired after the clock was right again", len(slots)-len(last))
	}
	at := slices.IndexFunc(slots, func(s time.Time) bool { return s.After(stepped.Add(time.Minute)) })
	eachOnce(t, slots[:at])
	eachOnce(t, slots[at:])
	if first := slots[at]; first.After(ahead.Add(-50 * time.Second)) {
		t.Errorf("the first slot of the new time is %s, want those of a minute before %s", first.Format(time.TimeOnly), ahead.Format(time.TimeOnly))
	}
	for key, n := range d.hourly.byKey() {
		if n != 1 {
			t.Errorf("%s fired %d times", key, n)
		}
	}
}
