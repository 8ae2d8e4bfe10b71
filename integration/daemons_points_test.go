package integration

import (
	"fmt"
	"net/http"
	"os"
	"slices"
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
	f.cameBack(freezes)
	if n := f.declaredDead(); n != 1 {
		t.Errorf("%d daemons were taken for dead, one was frozen", n)
	}
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

// noteCommand notes its start and its end, and every earlier attempt of its turn whose process is still there.
const noteCommand = `
cd "$(dirname "$0")"
touch log
key=$TRIGGERD_IDEMPOTENCY_KEY
while read -r what k pid; do
  [ "$what $k" = "start $key" ] && [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status && echo "alive $key $pid" >> log
done < log
echo "start $key $$" >> log
sleep 0.2
echo "end $key $$" >> log
`

// The same around a command, which is a process of its own: frozen before it is told to go, after its end, and with its end sent. What the thawed daemon
// may still start, or tell to go, does not run any more.
func TestFrozenAroundACommand(t *testing.T) {
	t.Parallel() // it mostly waits
	cases := map[string]func(*testing.T){}
	for name, point := range map[string]string{
		"before it is started": failpoint.ActionStarted, "before it is told to go": failpoint.AfterRunning, "after its end": failpoint.ActionFinished, "its end is sent": failpoint.EndSent,
	} {
		cases[name] = func(t *testing.T) { freezeAround(t, point) }
	}
	together(t, cases)
}

func freezeAround(t *testing.T, point string) {
	server := newNATS(t, nil)
	shared := newInstallation(t, "  url: "+server.url(), "") // for the script and its log only
	script := shared.script("note.sh", noteCommand)
	f := newGroup(t, 2, on(server.url()), fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  job: { connection: in, run: { exec: { command: [%s] } } }
`, script), func(i int, in *installation) {
		if i == 0 {
			in.binary = failpointBinary
			in.env = append(in.env, "TRIGGERD_FAILPOINT="+point+":2:stop")
		}
	})
	f.agreed()
	freezes, other := f.members[0], f.members[1]
	n := 0
	await(t, "the daemon freezes", 20*time.Second, func() bool {
		if a := other.postPatiently(fmt.Sprint("e", n), []byte("{}")); a.Status == http.StatusAccepted {
			n++
		}
		return freezes.p.frozen()
	})
	froze := time.Now()
	turns := other.awaitTurns("job", "the other does all the work", 20*time.Second, allFinal(n))
	after := shared.seen("log")
	<-time.After(time.Until(froze.Add(7 * time.Second)))
	freezes.thaw()
	f.cameBack(freezes)
	if dead := f.declaredDead(); dead != 1 {
		t.Errorf("%d daemons were taken for dead, one was frozen", dead)
	}
	freezes.mustPost("in", "last", []byte("{}"))
	other.awaitTurns("job", "the last is done too", 20*time.Second, allFinal(n+1))

	lines := shared.seen("log")
	repeated, id := 0, freezes.self().ID
	for _, turn := range turns {
		by := map[string]int{} // who has recorded a start, how often
		for _, e := range other.oneEnd(turn.Key) {
			if e.State == "running" {
				by[e.Daemon]++
			}
		}
		starts := countSeen(lines, "start", turn.Key)
		repeated += starts - 1
		switch {
		case starts == 0 || countSeen(lines, "end", turn.Key) == 0:
			t.Errorf("%s is done, but has not run", turn.Key)
		case starts > 2 || starts > 1 && (by[id] != 1 || len(by) != 2): // the first one was the frozen daemon's
			t.Errorf("%s ran %d times, recorded starts by daemon: %v", turn.Key, starts, by)
		case starts > countSeen(after, "start", turn.Key):
			t.Errorf("%s ran again after the thaw", turn.Key)
		}
	}
	for _, l := range lines {
		if l.what == "alive" {
			t.Errorf("process %s of the frozen daemon was there when %s was started again", l.pid, l.key)
		}
	}
	if left := freezes.processes(); !slices.Equal(left, []int{freezes.p.cmd.Process.Pid}) {
		t.Errorf("processes %v of the thawed daemon are left", left)
	}
	t.Logf("%d commands, %d of them repeated", n, repeated)
}
