package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// Three daemons are restarted one after the other, with another configuration, under load: a filter is wider in it, and it has a trigger more.
// Each event is decided by one of the two, from some event on by the new one only; all daemons explain it alike, and the turns are those that they name.
func TestRollingRestartToAnotherConfiguration(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 3, on(server.url()), fleetConfig(log))
	l := startFlow(f, 20, 30*time.Millisecond)
	owed := func(n int) { // the daemons have work while they are restarted
		l.burst(n)
		at := time.Now()
		await(t, "events are accepted", 10*time.Second, func() bool { return l.acceptedSince(at) >= n })
	}
	owed(40)
	for _, m := range f.members {
		m.p.stop()
		m.configure("event.payload.n % 4 == 0", "event.payload.n % 2 == 0", "triggers:\n  work:", fmt.Sprintf(
			"triggers:\n  extra: { connection: in, filter: event.payload.n %% 3 == 0, run: { http: { url: %s/extra, body: '/${{ event.payload.n }}' } } }\n  work:", log.URL))
		m.restart()
		owed(40)
	}
	f.agreed()
	owed(40)
	l.stop()

	byVersion := map[string]int{}
	var events []console.Explanation
	turns := map[string]bool{}
	for id, n := range l.ids() {
		x := f.explained("in/" + id)
		events = append(events, x)
		byVersion[x.Version]++
		for _, v := range x.Verdicts {
			if (v.Verdict == "matched") != (v.Turn != nil) || v.Verdict != "matched" && v.Verdict != "filtered" {
				t.Errorf("%s, %s: %s (%s), turn %v", id, v.Trigger, v.Verdict, v.Reason, v.Turn)
			}
			if v.Turn != nil {
				turns[v.Turn.Key] = true
			}
		}
		checkVerdicts(t, id, n, x.Verdicts)
	}
	done := f.finalTurns("in", len(turns), 30*time.Second)
	checkTurns(t, done, turns)
	if effects := log.keys(); len(effects) != len(turns) {
		t.Errorf("%d turns took effect, there are %d", len(effects), len(turns))
	}
	for _, p := range repeats(log.all()) {
		t.Errorf("%s was repeated, although nothing had cut it short\n%s", p[0].key, story(p[:], nil))
	}
	for _, p := range inversions(log.all()) {
		t.Errorf("%s took effect before %s\n%s", p[0].key, p[1].key, story(p[:], nil))
	}
	slices.SortFunc(events, func(a, b console.Explanation) int { return int(a.Event.Seq) - int(b.Event.Seq) })
	changes := 0
	for i := 1; i < len(events); i++ {
		if events[i].Version != events[i-1].Version {
			changes++
		}
	}
	if len(byVersion) != 2 || changes != 1 {
		t.Errorf("versions %v changed %d times, want one change from one to the other", byVersion, changes)
	}
	if n := f.declaredDead(); n != 0 {
		t.Errorf("%d daemons were taken for dead", n)
	}
	t.Logf("%d events decided by %v, %d turns, %d posts sent again", len(events), byVersion, len(done), l.refusals)
}

// checkVerdicts holds an event's verdicts against the two configurations.
func checkVerdicts(t *testing.T, id string, n int, verdicts []console.Verdict) {
	t.Helper()
	matched := map[string]bool{}
	for _, v := range verdicts {
		matched[v.Trigger] = v.Verdict == "matched"
	}
	want := map[string]bool{"work": true, "also": n%4 == 0}
	if len(verdicts) == 3 {
		want = map[string]bool{"work": true, "also": n%2 == 0, "extra": n%3 == 0}
	}
	for trigger, m := range want {
		if got, there := matched[trigger]; !there || got != m {
			t.Errorf("%s: %s matched: %v, want %v", id, trigger, got, m)
		}
	}
}

// explained is an event's explanation, in which all daemons agree.
func (f *fleet) explained(ref string) (x console.Explanation) {
	f.t.Helper()
	for i, m := range f.members {
		y, err := m.client().Explain(f.t.Context(), ref)
		if err != nil {
			f.t.Fatalf("explain %s: %v", ref, err)
		}
		if i > 0 && summary(y) != summary(x) {
			f.t.Errorf("daemons explain %s differently:\n%s\n%s", ref, summary(x), summary(y))
		}
		x = y
	}
	return x
}

func summary(x console.Explanation) string {
	s := x.Version
	for _, v := range x.Verdicts {
		s += " " + v.Trigger + ":" + v.Verdict
		if v.Turn != nil {
			s += ":" + v.Turn.Hash
		}
	}
	return s
}

// A reload of one daemon makes the others read their files again, also where no daemon sees a change of them: behind a symbolic link.
func TestReloadReachesTheOtherDaemons(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	log := newEffectLog(t, shortEffects)
	shared := filepath.Join(t.TempDir(), "shared.yaml")
	text := func(limit int) []byte {
		return []byte(strings.ReplaceAll(fleetConfig(log), "% 4", "% "+strconv.Itoa(limit)))
	}
	if err := os.WriteFile(shared, text(4), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t}
	for range 3 {
		m := &member{installation: newInstallation(t, "  url: "+server.url(), ""), f: f}
		dir := filepath.Join(m.dir, "conf")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(m.config, filepath.Join(dir, "own.yaml")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(shared, filepath.Join(dir, "shared.yaml")); err != nil {
			t.Fatal(err)
		}
		m.config = dir
		f.members = append(f.members, m)
		m.begin()
	}
	for _, m := range f.members {
		m.p.awaitReady()
	}
	f.agreed()
	before := f.members[0].self().Config
	if err := os.WriteFile(shared, text(2), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := f.members[1].command("reload"); code != 0 {
		t.Fatalf("reload: %d, %s", code, errs)
	}
	await(t, "all daemons have the new configuration", 10*time.Second, func() bool {
		for _, m := range f.members {
			if c := m.self().Config; c == before || c == "" || c != f.members[1].self().Config {
				return false
			}
		}
		return true
	})
	f.agreed()
	f.members[2].mustPost("in", "t0-2", []byte(`{"thread":"t0","n":2}`))
	f.members[0].awaitTurns("", "it is decided by the new one", 10*time.Second, allFinal(2))
}
