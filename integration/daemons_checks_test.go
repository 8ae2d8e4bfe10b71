package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// fleetConfig has one webhook and two http actions: `work` runs in order within each thread, `also` takes every fourth event and has no thread.
func fleetConfig(l *effectLog) string {
	return fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
defaults: { triggers: { retry: { attempts: 10, backoff: { initial: 10ms, max: 100ms } } } }
triggers:
  work:
    connection: in
    thread: event.payload.thread
    run: { http: { url: %[1]s/work, body: "${{ event.payload.thread }}/${{ event.payload.n }}" } }
  also:
    connection: in
    filter: event.payload.n %% 4 == 0
    run: { http: { url: %[1]s/also, body: "/${{ event.payload.n }}" } }
`, l.URL)
}

// keysOf are the turns that are owed to an event under fleetConfig.
func keysOf(id string, n int) []string {
	if n%4 == 0 {
		return []string{"in:work:" + id, "in:also:" + id}
	}
	return []string{"in:work:" + id}
}

// eventOf is the event of a key of `work`.
func eventOf(key string) (id string, ok bool) { return strings.CutPrefix(key, "in:work:") }

// blow is something that was done to the daemons or to NATS.
type blow struct {
	what  string
	at    time.Time // when it hit
	until time.Time // what was accepted until then belongs to the blow
	cuts  bool      // it may cut actions short, which then repeat
	limit time.Duration
	took  time.Duration // until all of that had taken effect
	worst time.Duration // so long an event of it waited for its effect; see waits
}

// checkFleet holds the promises against the outside world: every accepted event has one done turn for each trigger that it is owed, and its effects;
// within a thread effects come in order and never two at a time; only what a blow cut short repeats. It returns the number of repeats.
func checkFleet(f *fleet, l *flow, log *effectLog, blows []blow) (repeated int) {
	f.t.Helper()
	owed := map[string]bool{}
	for id, n := range l.ids() {
		for _, key := range keysOf(id, n) {
			owed[key] = true
		}
	}
	turns := f.finalTurns("in", len(owed), 60*time.Second)
	checkTurns(f.t, turns, owed)
	attempts := log.all()
	for key := range log.keys() {
		if !owed[key] {
			f.t.Errorf("%s took effect, nobody accepted it", key)
		}
		delete(owed, key)
	}
	for key := range owed {
		f.t.Errorf("%s is done without an effect", key)
	}
	for _, p := range inversions(attempts) {
		f.t.Errorf("%s took effect before %s\n%s", p[0].key, p[1].key, story(p[:], blows))
	}
	for _, p := range overlaps(attempts) {
		f.t.Errorf("%s and %s ran at the same time\n%s", p[0].key, p[1].key, story(p[:], blows))
	}
	pairs := repeats(attempts)
	for _, p := range pairs {
		if !excused(p, blows) {
			f.t.Errorf("%s was repeated, although nothing had cut it short\n%s", p[0].key, story(p[:], blows))
		}
	}
	return len(pairs)
}

func checkTurns(t *testing.T, turns []console.TurnInfo, owed map[string]bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, turn := range turns {
		switch {
		case seen[turn.Key]:
			t.Errorf("%s has two turns", turn.Key)
		case !owed[turn.Key]:
			t.Errorf("%s has a turn, nobody accepted its event", turn.Key)
		case turn.State != "done":
			t.Errorf("%s is %s: %s", turn.Key, turn.State, turn.Error)
		}
		seen[turn.Key] = true
	}
	for key := range owed {
		if !seen[key] {
			t.Errorf("%s has no turn", key)
		}
	}
}

// recordTakes is how long an action's end may wait to be recorded, on a busy machine, and so be cut short although it has taken effect.
const recordTakes = time.Second

// excused reports whether a blow came between two attempts of one key, so soon that the first one cannot have been recorded.
func excused(p [2]attempt, blows []blow) bool {
	return slices.ContainsFunc(blows, func(b blow) bool {
		return b.cuts && p[0].begin.Before(b.at.Add(recordTakes)) && p[0].end.After(b.at.Add(-recordTakes)) && p[1].begin.After(b.at)
	})
}

// story tells when attempts were, in relation to the last blow before each.
func story(attempts []attempt, blows []blow) string {
	var s strings.Builder
	for _, a := range attempts {
		after := "no blow"
		for _, b := range blows {
			if b.at.Before(a.begin) {
				after = fmt.Sprintf("%s of %s", a.begin.Sub(b.at).Round(time.Millisecond), b.what)
			}
		}
		fmt.Fprintf(&s, "  %s began %s, took %s, cut short: %v; began after %s\n",
			a.key, a.begin.Format("15:04:05.000"), a.end.Sub(a.begin).Round(time.Microsecond), a.cut, after)
	}
	return s.String()
}

// waits wants no event that was accepted around a blow to wait longer for its effect than the blow allows, and returns the worst for each kind of blow.
func waits(t *testing.T, l *flow, log *effectLog, blows []blow) map[string]time.Duration {
	t.Helper()
	began := map[string]time.Time{} // first attempts
	for _, a := range log.all() {
		if _, some := began[a.key]; !some {
			began[a.key] = a.begin
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	worst := map[string]time.Duration{}
	for i, b := range blows {
		kind, _, _ := strings.Cut(b.what, ":")
		from := b.at.Add(-recordTakes)
		if i > 0 && blows[i-1].until.After(from) {
			from = blows[i-1].until // what came before that waited for the end of another blow
		}
		for id, accepted := range l.accepted {
			first, some := began["in:work:"+id]
			if !some || accepted.Before(from) || accepted.After(b.until) || first.Before(b.at) {
				continue
			}
			wait := first.Sub(accepted)
			worst[kind] = max(worst[kind], wait.Round(time.Millisecond))
			blows[i].worst = max(blows[i].worst, wait)
			if b.limit > 0 && wait > b.limit {
				t.Errorf("%s at %s: %s waited %s for its effect, want %s at most", b.what, b.at.Format("15:04:05.000"), id, wait, b.limit)
			}
		}
	}
	return worst
}
