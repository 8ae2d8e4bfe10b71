package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// noPause is the longest time without an action while a daemon that others may succeed has only had its wall clock stepped.
const noPause = 2 * time.Second

// The wall clock of the daemon that runs the turns is stepped by an hour, and another one's by an hour the other way, under load. Nobody takes over because
// of that. Then those who run turns are killed, so that daemons whose clocks are an hour or two apart succeed each other.
func TestClocksOfDaemonsAreStepped(t *testing.T) {
	if _, err := buildClock(); err != nil { // before anything else runs beside it: it takes all of the machine
		t.Fatal(err)
	}
	t.Parallel() // it mostly waits
	together(t, map[string]func(*testing.T){
		"ahead":  func(t *testing.T) { steppedFleet(t, time.Hour) },
		"behind": func(t *testing.T) { steppedFleet(t, -time.Hour) },
	})
}

// failing is an outside world that refuses the first three calls of each key.
func failing(t *testing.T) *world {
	var mu sync.Mutex
	calls := map[string]int{}
	w := newWorld(t)
	w.status = func(body string) int {
		mu.Lock()
		defer mu.Unlock()
		if calls[body]++; calls[body] <= 3 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
	return w
}

// clockConfig is fleetConfig with a trigger that has to try four times, and with a schedule.
func clockConfig(l *effectLog, retried, ticked *world) string {
	return strings.NewReplacer("\nconnections:\n", `
connections:
  again: { webhook: { verify: { scheme: none } } }
  tick: { cron: { schedule: '@every 1s' } }
`, "\ntriggers:\n", fmt.Sprintf(`
triggers:
  retried:
    connection: again
    retry: { attempts: 8, backoff: { initial: 1s, max: 3s } }
    run: { http: { url: %s, body: "${{ event.id }}" } }
  beat: { connection: tick, overlap: queue, run: { http: { url: %s, body: "${{ event.id }}" } } }
`, retried.URL, ticked.URL)).Replace(fleetConfig(l))
}

func steppedFleet(t *testing.T, step time.Duration) {
	log, retried, ticked := newEffectLog(t, shortEffects), failing(t), newWorld(t)
	server := newNATS(t, nil)
	clocks := map[*installation]*clock{}
	f := newGroup(t, 3, on(server.url()), clockConfig(log, retried, ticked), func(_ int, in *installation) { clocks[in] = newClock(t, in) })
	r := &retries{t: t, w: retried, posted: map[string]time.Time{}}
	l := startFlow(f, 12, 50*time.Millisecond)

	first := f.busiest(log)
	other := f.other(first)
	r.post(f, "before the step")
	began := time.Now()
	clocks[first.installation].step(step)
	clocks[other.installation].step(-step)
	r.post(f, "after the step")
	<-time.After(7 * time.Second) // more than a daemon that seems to be silent is waited for
	settled := time.Now()
	if gap := longestGap(log.all(), began, settled); gap > noPause {
		t.Errorf("%s without an effect after the step, want %s at most", gap, noPause)
	}
	for _, p := range repeats(log.all()) {
		t.Errorf("a step has cut short an action\n%s", story(p[:], nil))
	}
	f.wroteWith(first, began, settled, step)
	l.explained(f, began, settled)

	var blows []blow
	for range 2 {
		m := f.busiest(log)
		r.post(f, fmt.Sprint("before kill ", len(blows)+1))
		at := time.Now()
		m.p.kill()
		l.newEffect(log, at, 20*time.Second)
		blows = append(blows, blow{what: "kill", at: at, until: time.Now(), cuts: true, limit: afterKill})
		m.restart() // with the wrong clock
		r.post(f, fmt.Sprint("after kill ", len(blows)))
	}
	l.stop()
	repeated := checkFleet(f, l, log, blows)
	worst := pauses(t, log, blows)
	slowest := r.check(f)
	n := ticksOnce(t, f.anyone(), ticked, blows)
	l.kept(f)
	t.Logf("%d events, %d effects repeated, pauses %v, slowest of the turns with three failures %s, %d ticks", len(l.ids()), repeated, worst, slowest, n)
}

// wroteWith proves that a daemon's clock is wrong: by the ends that it wrote into turns between two moments of the right one.
func (f *fleet) wroteWith(m *member, from, to time.Time, wrong time.Duration) {
	f.t.Helper()
	seen := 0
	for id, who := range f.byID() {
		if who != m {
			continue
		}
		for _, turn := range f.anyone().turnsOf("in") {
			if turn.Finished == nil || !about(*turn.Finished, from, wrong) {
				continue
			}
			h := f.anyone().detail(turn.Key).History
			if last := h[len(h)-1]; last.Daemon != id {
				f.t.Errorf("%s ended at %s by another daemon's clock", turn.Key, last.Time)
			}
			if seen++; seen == 3 {
				return
			}
		}
	}
	f.t.Errorf("%d turns ended by a clock that is wrong by %s between %s and %s: the clock was not stepped", seen, wrong, from, to)
}

// explained wants an event that was accepted between two moments to be explained as matched by a turn that is there.
func (l *flow) explained(f *fleet, from, to time.Time) {
	f.t.Helper()
	l.mu.Lock()
	var id string
	for x, at := range l.accepted {
		if at.After(from) && at.Before(to) {
			id = x
		}
	}
	l.mu.Unlock()
	ex, verdicts := f.anyone().explain("in/" + id)
	if v := verdicts["work"]; ex.Event.ID != id || v.Verdict != "matched" || v.Turn == nil || v.Turn.Key != "in:work:"+id {
		f.t.Errorf("explain of %s: %+v", id, ex)
	}
}

// kept wants every accepted event in the history: nothing is old enough to go, by whatever clock.
func (l *flow) kept(f *fleet) {
	f.t.Helper()
	accepted, listed := l.ids(), map[string]bool{}
	for _, ev := range asJSON[[]console.EventInfo](f.anyone().installation, "events", "list", "--connection", "in", "--limit", "-1") {
		listed[ev.ID] = true
	}
	for id := range accepted {
		if !listed[id] {
			f.t.Errorf("event %s is not in the history", id)
		}
	}
}

// retries are events whose turns fail three times before they succeed.
type retries struct {
	t      *testing.T
	w      *world
	posted map[string]time.Time
}

// post sends one event to each daemon that answers.
func (r *retries) post(f *fleet, when string) {
	r.t.Helper()
	for i, m := range f.members {
		if m.answers() {
			id := fmt.Sprintf("%s, daemon %d", when, i)
			m.mustPost("again", id, []byte("{}"))
			r.posted[id] = time.Now()
		}
	}
}

// retriedWithin is what four attempts may take: the three waits between them are 1, 2 and 3 s at most. Two kills may fall into them.
const retriedWithin = 6*time.Second + 2*afterKill + 4*time.Second

// check wants each to have succeeded at the fourth attempt or, where a kill cut one short, a later one, in time by the right clock. It returns the longest.
func (r *retries) check(f *fleet) (slowest time.Duration) {
	r.t.Helper()
	turns := f.finalTurns("again", len(r.posted), retriedWithin)
	ends, calls := map[string]time.Time{}, map[string]int{}
	for _, e := range r.w.all() {
		ends[e.body], calls[e.body] = e.end, calls[e.body]+1
	}
	for id, at := range r.posted {
		took := ends[id].Sub(at)
		if slowest = max(slowest, took); took > retriedWithin || calls[id] < 4 || calls[id] > 6 {
			r.t.Errorf("event %q: %d attempts, the last one %s after it was accepted, want 4 within %s", id, calls[id], took, retriedWithin)
		}
	}
	if done := count(turns, "done"); done != len(r.posted) {
		r.t.Errorf("%d turns of %d are done", done, len(r.posted))
	}
	return slowest
}

// ticksOnce wants one done turn for each slot that fired, whatever the clocks of those who fired it, and effects of them that only a blow repeats.
// It returns the number of slots.
func ticksOnce(t *testing.T, m *member, w *world, blows []blow) int {
	t.Helper()
	var turns []console.TurnInfo
	before := len(w.all()) // a tick may come while the turns are read
	await(t, "every tick is done", 20*time.Second, func() bool {
		turns = m.turnsOf("tick")
		return len(turns) > 0 && count(turns, "done") == len(turns)
	})
	slots := map[string]bool{}
	for _, turn := range turns {
		if slots[turn.EventID] {
			t.Errorf("slot %s has two turns", turn.EventID)
		}
		slots[turn.EventID] = true
	}
	last := map[string]attempt{}
	for i, e := range w.all() {
		a := attempt{key: e.key, begin: e.begin, end: e.end}
		if earlier, some := last[e.key]; some && !excused([2]attempt{earlier, a}, blows) {
			t.Errorf("tick %s was repeated, although nothing had cut it short", e.body)
		}
		if last[e.key] = a; !slots[e.body] && i < before {
			t.Errorf("tick %s took effect without a turn", e.body)
		}
	}
	for slot := range slots {
		if _, some := last["tick:beat:"+slot]; !some {
			t.Errorf("tick %s is done without an effect", slot)
		}
	}
	return len(slots)
}

// pauses wants no longer time without any effect after each blow than its limit, and returns the worst for each kind of blow.
func pauses(t *testing.T, log *effectLog, blows []blow) map[string]time.Duration {
	t.Helper()
	worst := map[string]time.Duration{}
	attempts := log.all()
	for _, b := range blows {
		gap := longestGap(attempts, b.at, b.until)
		kind, _, _ := strings.Cut(b.what, ":")
		worst[kind] = max(worst[kind], gap.Round(time.Millisecond))
		if b.limit > 0 && gap > b.limit {
			t.Errorf("%s at %s: %s without an effect, want %s at most", b.what, b.at.Format("15:04:05.000"), gap, b.limit)
		}
	}
	return worst
}
