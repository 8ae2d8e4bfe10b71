package integration

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/failpoint"
)

// frozen reports whether the process stands still.
func (p *process) frozen() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// A daemon freezes by itself in the middle of an append, an open, an action or a final, for longer than the other waits. The other does its work; what
// the thawed one was about to write or to do is refused, or is what is there already: one final turn each, in order, and nothing at the same time.
func TestFrozenInTheMiddle(t *testing.T) {
	t.Parallel() // it mostly waits
	cases := map[string]func(*testing.T){}
	slots := make(chan struct{}, 4) // eight daemons at once are enough for two cores
	for name, point := range map[string]string{
		"of an append": failpoint.BeforeAppend, "after an append": failpoint.AfterAppend, "of an open": failpoint.BeforeOpen, "after an open": failpoint.AfterOpen,
		"of a start": failpoint.AfterRunning, "before an action": failpoint.ActionStarted, "after an action": failpoint.ActionFinished, "of a final": failpoint.EndSent,
	} {
		cases[name] = func(t *testing.T) {
			slots <- struct{}{}
			defer func() { <-slots }()
			freezeAt(t, point)
		}
	}
	together(t, cases)
}

// manyHooks is fleetConfig with four webhooks, so that each of two daemons owns some.
func manyHooks(log *effectLog) string {
	const hook, in = "  in: { webhook: { verify: { scheme: none } } }\n", "connection: in\n"
	var hooks strings.Builder
	for i := range 4 {
		fmt.Fprintf(&hooks, "  in%d: { webhook: { verify: { scheme: none } } }\n", i)
	}
	body := strings.Replace(fleetConfig(log), hook, hook+hooks.String(), 1)
	return strings.ReplaceAll(body, in, "connection: [in, in0, in1, in2, in3]\n")
}

func freezeAt(t *testing.T, point string) {
	server := newNATS(t, nil)
	log := newEffectLog(t, shortEffects)
	f := &fleet{t: t}
	for i := range 2 {
		m := &member{installation: newInstallation(t, "  url: "+server.url(), manyHooks(log)), f: f}
		if i == 0 {
			m.binary = failpointBinary
			m.env = append(m.env, "TRIGGERD_FAILPOINT="+point+":3:stop")
		}
		f.members = append(f.members, m)
		m.begin()
	}
	for _, m := range f.members {
		m.p.awaitReady()
	}
	f.agreed()
	freezes, other := f.members[0], f.members[1]

	owed := map[string]bool{}
	send := func(n int) {
		thread := n % 8
		body := fmt.Appendf(nil, `{"thread":"t%d","n":%d}`, thread, n)
		connection := fmt.Sprint("in", thread%4) // a thread's events come in one order
		for i := 0; ; i++ {
			to := f.members[(n+i)%2]
			if to == freezes && freezes.p.frozen() {
				to = other
			}
			if a := to.postTo(connection, fmt.Sprint("e", n), body); a.Status == http.StatusAccepted {
				break
			}
			if i == 50 {
				t.Fatalf("event %d is not accepted", n)
			}
		}
		owed[fmt.Sprintf("%s:work:e%d", connection, n)] = true
		if n%4 == 0 {
			owed[fmt.Sprintf("%s:also:e%d", connection, n)] = true
		}
	}
	n := 0
	await(t, "the daemon freezes", 20*time.Second, func() bool { send(n); n++; return freezes.p.frozen() })
	froze := time.Now()
	for range 24 {
		send(n)
		n++
	}
	other.awaitTurns("", "the other does all the work", 20*time.Second, allFinal(len(owed)))
	<-time.After(time.Until(froze.Add(7 * time.Second)))
	freezes.thaw()
	f.agreed()
	for range 16 {
		send(n)
		n++
	}
	turns := other.awaitTurns("", "all is done", 20*time.Second, allFinal(len(owed)))
	checkTurns(t, turns, owed)
	for key := range owed {
		other.oneEnd(key)
	}
	attempts := log.all()
	for _, p := range inversions(attempts) {
		t.Errorf("%s took effect before %s", p[0].key, p[1].key)
	}
	for _, p := range overlaps(attempts) {
		t.Errorf("%s and %s ran at the same time", p[0].key, p[1].key)
	}
	pairs := repeats(attempts)
	for _, p := range pairs {
		if p[0].begin.After(froze.Add(recordTakes)) || p[1].begin.Before(froze) {
			t.Errorf("%s was repeated, although nothing had cut it short\n%s", p[0].key, story(p[:], nil))
		}
	}
	t.Logf("%d events, %d turns, %d effects repeated", n, len(turns), len(pairs))
}
