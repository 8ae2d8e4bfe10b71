package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/cron"
)

// payloadOf is the payload of a stored event.
func payloadOf[T any](in *installation, connection, id string) (v T) {
	in.t.Helper()
	if err := json.Unmarshal(asJSON[console.EventDetail](in, "events", "show", connection+"/"+id).Payload, &v); err != nil {
		in.t.Fatal(err)
	}
	return v
}

// slotsOf are the slots of a schedule that have fired and whether each of them was missed first, and the records of those that did not fire.
func slotsOf(in *installation, connection string) (fired map[string]bool, missed []cron.Missed) {
	in.t.Helper()
	fired = map[string]bool{}
	for _, ev := range in.events(connection) {
		if ev.Type == cron.MissedType {
			missed = append(missed, payloadOf[cron.Missed](in, connection, ev.ID))
			continue
		}
		fired[ev.ID] = payloadOf[cron.Tick](in, connection, ev.ID).CatchUp
	}
	return fired, missed
}

// P10: three daemons share a schedule of every second, whose owner is killed: for 60 s each slot fires once, and its action runs once, though the rule is
// to catch up nothing. No owner can be a second late for long: what was due meanwhile was not missed.
func TestScheduleOfThreeDaemons(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	server := newNATS(t, nil)
	f := newFleet(t, 3, on(server.url()), fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
  second: { cron: { schedule: "* * * * * *", seconds: true, timezone: Europe/London, catch_up: none } }
triggers:
  beat: { connection: second, overlap: queue, run: { http: { url: "%s/effect", body: "${{ event.id }}" } } }
`, w.URL))
	began := time.Now()
	await(t, "slots have fired", 10*time.Second, func() bool { return len(w.byKey()) >= 5 })
	owner := f.members[slices.IndexFunc(f.members, func(m *member) bool { return m.owns("second") })]
	owner.p.kill()
	killed := time.Now()
	await(t, "the schedule goes on", afterKill, func() bool { return w.byKey()["second:beat:"+killed.UTC().Add(time.Second).Format(time.RFC3339)] > 0 })
	took := time.Since(killed)
	owner.restart()
	<-time.After(time.Until(began.Add(time.Minute)))
	until := time.Now()
	await(t, "all slots of the minute have fired", 10*time.Second, func() bool { return w.byKey()["second:beat:"+until.UTC().Format(time.RFC3339)] > 0 })

	fired, missed := slotsOf(owner.installation, "second")
	var slots []time.Time
	for id, late := range fired {
		slot, err := time.Parse(time.RFC3339, id)
		if err != nil || late {
			t.Errorf("slot %s, missed first %v, %v", id, late, err)
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, time.Time.Compare)
	eachOnce(t, slots)
	if len(missed) > 0 || slots[0].After(began.Add(2*time.Second)) {
		t.Errorf("the first slot is %s, missed %+v", slots[0], missed)
	}
	repeated := 0
	for id := range fired {
		switch n := w.byKey()["second:beat:"+id]; {
		case n == 0 && !slots[len(slots)-1].Before(until):
		case n == 0:
			t.Errorf("%s has had no effect", id)
		default:
			repeated += n - 1
		}
	}
	if repeated > 1 { // what the kill cut short
		t.Errorf("%d effects were repeated", repeated)
	}
	t.Logf("%d slots, %d effects repeated, the schedule went on %s after the kill", len(slots), repeated, took.Round(time.Millisecond))
}

// P11: after an hour of down-time each slot of a schedule fires or is recorded as missed, as its rule says, and a second start finds nothing more to do.
func TestScheduleAfterDownTime(t *testing.T) {
	if _, err := buildClock(); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // it mostly waits
	w := newWorld(t)
	conn := func(name, rule string) string {
		return fmt.Sprintf("  %s: { cron: { schedule: '*/10 * * * *', timezone: UTC, %s } }\n", name, rule)
	}
	in := newInstallation(t, "", "\nconnections:\n"+conn("none", "catch_up: none")+conn("latest", "catch_up: latest")+conn("all", "catch_up: all")+
		conn("some", "catch_up: all, catch_up_limit: 2")+conn("young", "catch_up: all, catch_up_window: 30m")+fmt.Sprintf(`
triggers:
  run: { connection: [none, latest, all, some, young], overlap: queue, run: { http: { url: "%s/effect", body: "${{ event.payload.catch_up }}" } } }
  told: { connection: none, event: schedule.missed, run: { http: { url: "%[1]s/effect", body: "${{ event.payload.slots }}" } } }
`, w.URL))
	c := newClock(t, in)
	p := in.run()
	want := map[string]int{"none": 0, "latest": 1, "all": 6, "some": 2, "young": 3} // so many fire, the newest
	for name := range want {
		await(t, "the schedule has its first position", 10*time.Second, func() bool { return in.source(name).State == "running" })
	}
	p.stop()
	stopped := time.Now()
	// When it is started again, a slot was due five minutes ago. The real clock may get over a slot in between.
	c.step(time.Hour + 5*time.Minute - stopped.Sub(stopped.Truncate(10*time.Minute)))
	now := stopped.Truncate(10 * time.Minute).Add(time.Hour + 5*time.Minute)
	var slots []string
	for slot := stopped.Truncate(10 * time.Minute).Add(10 * time.Minute); slot.Before(now); slot = slot.Add(10 * time.Minute) {
		slots = append(slots, slot.UTC().Format(time.RFC3339))
	}
	for _, dealt := range []float64{6, 0} { // the second start finds nothing to do
		p = in.run()
		in.awaitTurns("run", "the slots that are caught up", 20*time.Second, allFinal(12))
		in.awaitTurns("told", "the trigger that asks for what was missed", 20*time.Second, allFinal(1))
		for _, metric := range []string{`{connection="all",state="late"}`, `{connection="none",state="missed"}`} {
			await(t, "slots are counted as they were dealt with", 5*time.Second, func() bool { return in.metric("triggerd_schedule_slots_total"+metric) == dealt })
		}
		p.stop()
	}
	in.run()
	for name, n := range want {
		fired, missed := slotsOf(in, name)
		for i, slot := range slots {
			if late, ok := fired[slot]; ok != (i >= len(slots)-n) || ok && !late {
				t.Errorf("%s: slot %s fired %v, late %v", name, slot, ok, late)
			}
		}
		left, beyond := 6-n, false
		if name == "young" {
			left, beyond = 0, true // older than the window: not counted
		}
		switch {
		case n == 6 && len(missed) == 0:
		case len(missed) != 1:
			t.Errorf("%s: missed %+v, want one record", name, missed)
		case missed[0].Slots != left || missed[0].Beyond != beyond || missed[0].From.Format(time.RFC3339) != slots[0]:
			t.Errorf("%s: missed %+v, want %d from %s", name, missed[0], left, slots[0])
		}
	}
	for key, n := range w.byKey() {
		if n != 1 {
			t.Errorf("%s had %d effects", key, n)
		}
	}
}

// P13: a process that is frozen while a minute comes serves it when it thaws, once, and says how late.
func TestScheduleWhileFrozen(t *testing.T) {
	t.Parallel() // it mostly waits
	in := newInstallation(t, "", `
triggers:
  minute: { cron: { schedule: '* * * * *', timezone: UTC, catch_up: none }, run: { exec: { command: ['true'] } } }
`)
	if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 5*time.Second {
		<-time.After(left + 100*time.Millisecond) // else a minute passes while the daemon starts
	}
	p := in.run()
	due := time.Now().Truncate(time.Minute).Add(time.Minute)
	<-time.After(time.Until(due.Add(-time.Second)))
	p.signal(syscall.SIGSTOP)
	<-time.After(time.Until(due.Add(2 * time.Second)))
	p.signal(syscall.SIGCONT)
	in.awaitTurns("minute", "the minute's turn", 10*time.Second, allFinal(1))
	fired, missed := slotsOf(in, "minute")
	id := due.UTC().Format(time.RFC3339)
	if late, ok := fired[id]; !ok || late || len(fired) != 1 || len(missed) != 0 {
		t.Fatalf("fired %v, missed %v, want %s only", fired, missed, id)
	}
	if late := payloadOf[cron.Tick](in, "minute", id).LateByMS; late < 1900 || late > 10_000 {
		t.Errorf("it says that it was %d ms late", late)
	}
}

// Past slots fire in order, one at a time though the schedule skips overlaps, once each; again only when that is wanted.
func TestScheduleBackfill(t *testing.T) {
	log := newEffectLog(t, shortEffects)
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  nightly: { cron: { schedule: '30 2 * * *', timezone: America/New_York } }
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  report: { connection: nightly, run: { http: { url: "%s/effect", body: "t/${{ int(timestamp(event.payload.scheduled)) }}" } } }
`, log.URL))
	p := in.run()
	backfill := func(args ...string) console.BackfillResult {
		t.Helper()
		return asJSON[console.BackfillResult](in, append([]string{"schedule", "backfill", "nightly"}, args...)...)
	}
	states := func(res console.BackfillResult) (out []string) {
		for _, s := range res.Slots {
			out = append(out, s.Local+" "+s.State)
		}
		return out
	}
	interval := []string{"2026-03-07T00:00:00-05:00", "2026-03-10T02:30:00-04:00"}
	all := func(state string) string {
		var out []string
		for _, at := range []string{"2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"} {
			out = append(out, at+" "+state)
		}
		return strings.Join(out, "\n")
	}
	same := func(what string, res console.BackfillResult, want string) {
		t.Helper()
		if got := strings.Join(states(res), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	same("a dry run", backfill(append(interval, "--dry-run")...), all(console.SlotDue))
	first := backfill(interval...)
	same("the first time", first, all(console.SlotBackfilled))
	in.awaitTurns("report", "the slots' turns", 20*time.Second, allFinal(4))
	p.kill()
	in.run()
	same("once more", backfill(interval...), all(console.SlotFired))
	same("a dry run of what has fired", backfill(append(interval, "--dry-run")...), all(console.SlotFired))
	same("again", backfill(append(interval, "--again")...), all(console.SlotBackfilled))
	turns := in.awaitTurns("report", "all turns", 20*time.Second, allFinal(8))
	if n := count(turns, "done"); n != 8 {
		t.Errorf("%d of 8 turns are done: %+v", n, turns)
	}
	if tick := payloadOf[cron.Tick](in, "nightly", "2026-03-08T07:00:00Z"); tick.Backfill != first.Batch || tick.CatchUp || tick.Local != "2026-03-08T03:00:00-04:00" {
		t.Errorf("tick %+v, want batch %s", tick, first.Batch)
	}
	attempts := log.all()
	if pairs := overlaps(attempts); len(pairs) > 0 || len(attempts) != 8 {
		t.Errorf("%d effects, %d at the same time", len(attempts), len(pairs))
	}
	for _, half := range [][]attempt{attempts[:4], attempts[4:]} {
		if !slices.IsSortedFunc(half, func(a, b attempt) int { return a.n - b.n }) {
			t.Errorf("not in order: %+v", half)
		}
	}
	for what, args := range map[string][]string{
		"nobody": {"nobody", interval[0], interval[1]}, "a webhook": {"hook", interval[0], interval[1]}, "the future": {"nightly", interval[0], "2126-01-01T00:00:00Z"},
		"backwards": {"nightly", interval[1], interval[0]}, "too much": {"nightly", "2000-01-01T00:00:00Z", interval[0]},
	} {
		if out, says, code := in.command(append([]string{"schedule", "backfill"}, args...)...); code != 1 || out != "" || says == "" {
			t.Errorf("%s: code %d, %s%s", what, code, out, says)
		}
	}
}
