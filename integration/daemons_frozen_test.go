package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// final reports whether a turn does not change any more in this state.
func final(state string) bool {
	return slices.Contains([]string{"done", "dead", "skipped", "cancelled", "parked"}, state)
}

// oneEnd wants a history with one end, the last entry, and no entry of an owner after one of a later owner. It returns the entries.
func (m *member) oneEnd(key string) []console.TurnEntry {
	m.t.Helper()
	d := m.detail(key)
	var epoch uint64
	for i, e := range d.History {
		if final(e.State) != (i == len(d.History)-1) {
			m.t.Errorf("%s: entry %d of %d is %s: %+v", key, i+1, len(d.History), e.State, d.History)
		}
		if e.Epoch < epoch {
			m.t.Errorf("%s: an entry of epoch %d follows one of %d: %+v", key, e.Epoch, epoch, d.History)
		}
		epoch = max(epoch, e.Epoch)
	}
	if d.State != "done" {
		m.t.Errorf("%s is %s: %s", key, d.State, d.Error)
	}
	return d.History
}

// cameBack wants a daemon that was taken for dead to have said so once, and to take its part again.
func (f *fleet) cameBack(m *member) {
	f.t.Helper()
	m.p.awaitLog(lostMembership, 1)
	f.agreed()
	if n := len(m.p.lines(lostMembership)); n != 1 {
		f.t.Errorf("the daemon has said %d times that it was taken for dead", n)
	}
	if state := m.client().Ready(f.t.Context()); !state.Ready || state.Role != "owner" {
		f.t.Errorf("its readiness: %+v", state)
	}
}

// Log lines that tell of a takeover.
const (
	lostMembership = "other daemons took this one for dead, or might have: it drops its work and joins again"
	saidDead       = "a daemon is silent: its work is taken over"
)

// seen is a line of the script's log.
type seen struct{ what, key, pid string }

func (in *installation) seen(log string) (lines []seen) {
	words := in.words(log)
	for i := 0; i+2 < len(words); i += 3 {
		lines = append(lines, seen{words[i], words[i+1], words[i+2]})
	}
	return lines
}

func countSeen(lines []seen, what, key string) (n int) {
	for _, l := range lines {
		if l.what == what && l.key == key {
			n++
		}
	}
	return n
}

// slowCommand notes its start and its end, and every earlier attempt of its turn whose process is still there. The first attempt of `long` never
// ends by itself; `quick` takes two seconds, so that it ends while its daemon is frozen.
const slowCommand = `
cd "$(dirname "$0")"
touch log
key=$TRIGGERD_IDEMPOTENCY_KEY
nth=1
while read -r what k pid; do
  [ "$what $k" = "start $key" ] || continue
  nth=2
  [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status && echo "alive $key $pid" >> log
done < log
echo "start $key $$" >> log
case $key-$nth in
  *:long-1) sleep 300 & sleep 300 ;;
  *) sleep 2 ;;
esac
echo "end $key $$" >> log
`

// A daemon is frozen while it runs two commands. Before the successor starts them again they are gone, whether they had ended or not; what the
// thawed one wants to record of them counts for nothing, and it takes part again.
func TestFrozenOwnerIsSucceeded(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	shared := newInstallation(t, "  url: "+server.url(), "") // for the script and its log only
	script := shared.script("slow.sh", slowCommand)
	f := newFleet(t, 3, on(server.url()), fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  job: { connection: in, concurrency: [ { limit: 10 } ], run: { exec: { command: [%s] } } } # one daemon runs both: see docs/promises.md
`, script))
	f.random().mustPost("in", "long", []byte("{}"))
	f.random().mustPost("in", "quick", []byte("{}"))
	const long, quick = "in:job:long", "in:job:quick"
	await(t, "both commands run", 10*time.Second, func() bool {
		lines := shared.seen("log")
		return countSeen(lines, "start", long) == 1 && countSeen(lines, "start", quick) == 1
	})
	owner := f.runner(long)
	if f.runner(quick) != owner {
		t.Fatal("the turns of a trigger with a limit run in two daemons")
	}
	owner.freeze()
	froze := time.Now()
	await(t, "the quick command ends although its daemon is frozen", 5*time.Second, func() bool { return countSeen(shared.seen("log"), "end", quick) == 1 })
	await(t, "the successor starts both again", 12*time.Second, func() bool {
		lines := shared.seen("log")
		return countSeen(lines, "start", long) == 2 && countSeen(lines, "start", quick) == 2
	})
	took := time.Since(froze)
	if took > afterKill {
		t.Errorf("the successor started after %s, want %s at most", took, afterKill)
	}
	owner.thaw() // in the middle of the successor's attempts
	next := f.other(owner)
	next.awaitTurns("job", "both are done", 20*time.Second, allFinal(2))
	f.cameBack(owner)

	lines := shared.seen("log")
	if n := countSeen(lines, "start", long) + countSeen(lines, "start", quick); n != 4 {
		t.Errorf("%d starts, want two of each", n)
	}
	if n := countSeen(lines, "end", long); n != 1 {
		t.Errorf("%d ends of the command that was cut short, want the successor's", n)
	}
	for _, l := range lines {
		if l.what == "alive" {
			t.Errorf("process %s of the frozen owner was there when the successor started %s again", l.pid, l.key)
		}
	}
	for _, key := range []string{long, quick} {
		t.Logf("%s: %+v", key, next.oneEnd(key))
	}
	if left := owner.processes(); !slices.Equal(left, []int{owner.p.cmd.Process.Pid}) {
		t.Errorf("processes %v of the former owner are left", left)
	}
	owner.mustPost("in", "after", []byte("{}"))
	next.awaitTurns("job", "the event that the former owner took is done", 20*time.Second, allFinal(3))
	t.Logf("the successor started both %s after the freeze", took)
}

// A frozen owner that is alone thaws and goes on, however long it was frozen: nobody has taken over.
func TestFrozenLoneOwnerGoesOn(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	log := newEffectLog(t, func(string, int) time.Duration { return 2 * time.Second })
	f := newFleet(t, 1, on(server.url()), fleetConfig(log))
	m := f.members[0]
	id, body := numbered(0, 1)
	m.mustPost("in", id, body)
	<-log.started
	m.freeze()
	<-time.After(7 * time.Second) // longer than a lease is waited for
	m.thaw()
	m.awaitTurns("work", "the turn is done", 10*time.Second, allFinal(1))
	m.oneEnd("in:work:" + id)
	if as := log.all(); len(as) != 1 || as[0].cut {
		t.Errorf("attempts %+v, want the one that was under way", as)
	}
	if n := len(m.p.lines(lostMembership)); n != 0 {
		t.Errorf("it was taken for dead %d times, by nobody", n)
	}
}

// The owner is killed while its command runs in a session of its own: its supervisor ends it, and the successor finds nothing of it.
func TestKilledOwnerLeavesNoCommand(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	shared := newInstallation(t, "  url: "+server.url(), "")
	script := shared.script("slow.sh", slowCommand)
	f := newFleet(t, 2, on(server.url()), fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  job: { connection: in, run: { exec: { command: [setsid, --wait, %s] } } }
`, script))
	f.random().mustPost("in", "long", []byte("{}"))
	const key = "in:job:long"
	await(t, "the command runs", 10*time.Second, func() bool { return countSeen(shared.seen("log"), "start", key) == 1 })
	owner := f.runner(key)
	owner.p.signal(syscall.SIGKILL)
	<-owner.p.done
	owner.noOrphans(2 * time.Second)
	next := f.other(owner)
	next.awaitTurns("job", "the turn is done", 20*time.Second, allFinal(1))
	next.oneEnd(key)
	var whats []string
	for _, l := range shared.seen("log") {
		whats = append(whats, l.what)
	}
	if got := strings.Join(whats, " "); got != "start start end" {
		t.Errorf("the command's log in %s: %s", filepath.Join(shared.dir, "log"), got)
	}
}
