package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/failpoint"
)

// ledger is what the commands say about one installation.
type ledger struct {
	events   []console.EventInfo
	verdicts map[string]map[string]string // event "<connection>/<id>" -> trigger -> verdict
	turns    []console.TurnInfo
}

func readLedger(t *testing.T, in *installation) ledger {
	t.Helper()
	l := ledger{
		events:   asJSON[[]console.EventInfo](in, "events", "list", "--limit", "-1"),
		turns:    asJSON[[]console.TurnInfo](in, "turns", "list", "--limit", "-1"),
		verdicts: map[string]map[string]string{},
	}
	c := in.client()
	for _, ev := range l.events {
		ref := ev.Connection + "/" + ev.ID
		ex, err := c.Explain(t.Context(), ref)
		if err != nil {
			t.Fatalf("explain %s: %v", ref, err)
		}
		l.verdicts[ref] = map[string]string{}
		for _, v := range ex.Verdicts {
			l.verdicts[ref][v.Trigger] = v.Verdict
		}
	}
	return l
}

// tally is one connection and trigger of the balance of P8.
type tally struct{ events, first, filtered, errored, replays int }

// balance computes P8 and names whatever does not add up.
func (l ledger) balance() (sums map[string]tally, problems []string) {
	sums = map[string]tally{}
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	first := map[string]int{} // by key
	for _, t := range l.turns {
		pair := t.Connection + ":" + t.Trigger
		s := sums[pair]
		if t.ReplayOf != "" {
			s.replays++
		} else {
			s.first++
			first[t.Key]++
		}
		sums[pair] = s
	}
	owed := map[string]bool{}
	for _, ev := range l.events {
		for trigger, verdict := range l.verdicts[ev.Connection+"/"+ev.ID] {
			pair, key := ev.Connection+":"+trigger, ev.Connection+":"+trigger+":"+ev.ID
			s := sums[pair]
			s.events++
			switch verdict {
			case "filtered":
				s.filtered++
			case "error":
				s.errored++
			case "matched":
				owed[key] = true
				if first[key] != 1 {
					bad("event %s/%s has %d turns of %s", ev.Connection, ev.ID, first[key], trigger)
				}
			default:
				bad("event %s/%s is %s for %s", ev.Connection, ev.ID, verdict, trigger)
			}
			sums[pair] = s
		}
	}
	for key := range first {
		if !owed[key] {
			bad("turn %s belongs to no event that its trigger matched", key)
		}
	}
	for pair, s := range sums {
		if s.events != s.first+s.filtered+s.errored {
			bad("%s: %d events, but %d first turns + %d filtered + %d errors", pair, s.events, s.first, s.filtered, s.errored)
		}
	}
	slices.Sort(problems)
	return sums, problems
}

// P8: after a load with kills everything adds up: three triggers of which one filters and one fails on some events, one poison event, one replay.
func TestConservation(t *testing.T) {
	const threads, perThread = 12, 25
	w := newWorld(t)
	w.status = func(body string) int {
		if body == "t3/7" {
			return 400
		}
		return 200
	}
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  all: { connection: in, thread: event.payload.thread, run: { http: { url: %[1]s/all, body: '${{ event.payload.thread }}/${{ event.payload.n }}' } } }
  odd: { connection: in, filter: event.payload.n %% 2 == 1, overlap: skip, run: { http: { url: %[1]s/odd } } }
  fragile: { connection: in, filter: 10 / (event.payload.n - 5) > 0, run: { http: { url: %[1]s/fragile } } }
`, w.URL))
	p := in.run()
	// Two kills in the middle of the load: each comes when so many effects have happened, of the 600 and more that the load has.
	kills := make(chan struct{})
	go func() {
		defer close(kills)
		for _, effects := range []int{30, 150} {
			for len(w.all()) < effects {
				<-time.After(time.Millisecond)
			}
			p.kill()
			p = in.run()
		}
	}()
	accepted := send(t, in, threads, 0, perThread)
	<-kills
	in.must("fire", "odd", "--id", "by-hand")
	final := func(ts []console.TurnInfo) bool {
		return count(ts, "done")+count(ts, "dead")+count(ts, "skipped") == len(ts)
	}
	in.awaitTurns("all", "all turns of all are final", 60*time.Second, func(ts []console.TurnInfo) bool { return final(ts) && len(ts) == len(accepted) })
	await(t, "nothing is pending", 30*time.Second, func() bool { return in.source("in").Pending == 0 })
	in.must("turns", "retry", "in:all:t3-7")
	in.awaitTurns("", "every turn is final", 60*time.Second, final)

	l := readLedger(t, in)
	sums, problems := l.balance()
	for _, p := range problems {
		t.Error(p)
	}
	n := len(accepted)
	if s := sums["in:all"]; s != (tally{events: n, first: n, replays: 1}) {
		t.Errorf("all: %+v, %d events were accepted", s, n)
	}
	if s := sums["in:odd"]; s.events != n || s.first != threads*(perThread/2) {
		t.Errorf("odd: %+v", s)
	}
	if s := sums["in:fragile"]; s.events != n || s.errored != threads {
		t.Errorf("fragile: %+v", s)
	}
	if s := sums["manual:odd"]; s != (tally{events: 1, first: 1}) {
		t.Errorf("fired: %+v", s)
	}
	t.Logf("%+v", sums)

	t.Run("a missing and a strange turn are named", func(t *testing.T) {
		cut := ledger{events: l.events, verdicts: l.verdicts, turns: slices.Clone(l.turns)}
		at := slices.IndexFunc(cut.turns, func(t console.TurnInfo) bool { return t.Key == "in:all:t5-9" })
		cut.turns[at].Key, cut.turns[at].EventID = "in:all:nobody", "nobody"
		_, problems := cut.balance()
		if len(problems) != 2 || !strings.Contains(problems[0], "in/t5-9 has 0 turns of all") || !strings.Contains(problems[1], "in:all:nobody belongs to no event") {
			t.Errorf("problems %q", problems)
		}
	})
}

// The connection "triggerd": one alert for each dead turn, whenever the daemon dies, and none about the alerts themselves.
func TestAlertOnDeadTurns(t *testing.T) {
	w := newWorld(t)
	w.status = func(body string) int {
		if strings.Contains(body, "poison") {
			return 400 // the alert itself fails for good as well
		}
		return 200
	}
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  work: { connection: in, run: { exec: { command: [sh, -c, 'test "$N" = fine', x], env: { N: '${{ event.payload.n }}' }, exit_codes: { dead: [1] } } } }
  alert: { connection: triggerd, event: turn.dead, run: { http: { url: %[1]s/alert, body: '${{ event.payload.key }}: ${{ event.payload.cause }}' } } }
  watch: { connection: triggerd, event: 'turn.*', filter: event.payload.trigger == 'alert', run: { http: { url: %[1]s/watch, body: 'watch ${{ event.payload.key }} ${{ event.payload.state }}' } } }
`, w.URL))
	in.binary = failpointBinary
	p := in.run("TRIGGERD_FAILPOINT=" + failpoint.AfterRecord + ":1") // the first end is stored, and nobody has been told
	in.mustPost("in", "broken", []byte(`{"n":"bad"}`))
	<-p.done
	p = in.run()
	dead := in.turn("work", "broken", "dead")
	in.mustPost("in", "poison", []byte(`{"n":"bad"}`))
	in.mustPost("in", "good", []byte(`{"n":"fine"}`))
	in.turn("work", "good", "done")
	in.awaitTurns("alert", "two alerts", 20*time.Second, func(ts []console.TurnInfo) bool {
		return count(ts, "done") == 1 && count(ts, "dead") == 1
	})
	in.awaitTurns("watch", "another trigger hears of the alerts' own ends", 20*time.Second, allFinal(2))
	for range 2 { // nothing is told again
		p.kill()
		p = in.run()
	}
	in.mustPost("in", "last", []byte(`{"n":"bad"}`))
	in.awaitTurns("alert", "the alert about the last one", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 2 })
	in.awaitTurns("watch", "and its end", 20*time.Second, allFinal(3))
	alerts := map[string]int{}
	for _, e := range w.all() {
		key, _, _ := strings.Cut(e.body, ": ")
		alerts[key]++
	}
	want := map[string]int{
		"in:work:broken": 1, "in:work:poison": 1, "in:work:last": 1,
		"watch triggerd:alert:turn.dead/" + dead.Hash + " done": 1,
	}
	for body, n := range want {
		if alerts[body] != n {
			t.Errorf("%q came %d times, want %d", body, alerts[body], n)
		}
	}
	if n := len(w.all()); n != 6 {
		t.Errorf("%d calls, want 3 alerts and 3 of watch: %v", n, alerts)
	}
	for _, ev := range in.events("triggerd") {
		if !strings.HasPrefix(ev.ID, "turn.dead/") {
			continue
		}
		detail := asJSON[console.EventDetail](in, "events", "show", fmt.Sprint(ev.Seq))
		_, verdicts := in.explain(fmt.Sprint(ev.Seq))
		aboutAlert := strings.Contains(string(detail.Payload), `"trigger":"alert"`) || strings.Contains(string(detail.Payload), `"trigger": "alert"`)
		if v := verdicts["alert"]; (v.Verdict == "filtered") != aboutAlert || aboutAlert && !strings.Contains(v.Reason, "its own turns") {
			t.Errorf("alert on %s: %+v", detail.Payload, v)
		}
	}
}
