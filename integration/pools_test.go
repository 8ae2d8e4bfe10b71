package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// labelled starts three daemons on one NATS server, the last of which has a label.
func labelled(t *testing.T, body string) (plain []*member, gpu *member) {
	t.Helper()
	server := newNATS(t, nil)
	f := &fleet{t: t}
	for i := range 3 {
		m := &member{installation: newInstallation(t, "  url: "+server.url(), body), f: f}
		if i == 2 {
			m.write(strings.Replace(m.read(), "server:\n", "server:\n  labels: { gpu: 'yes' }\n", 1))
		}
		f.members = append(f.members, m)
		m.begin()
	}
	for _, m := range f.members {
		m.p.awaitReady()
	}
	return f.members[:2], f.members[2]
}

func (m *member) self() console.DaemonInfo {
	for _, d := range m.daemons() {
		if d.Self {
			return d
		}
	}
	return console.DaemonInfo{}
}

// What is to run on daemons with a label runs nowhere else, and waits while there is none; a limit holds over all daemons.
func TestLabelsAndLimitsOverDaemons(t *testing.T) {
	t.Parallel() // it mostly waits
	log := newEffectLog(t, func(string, int) time.Duration { return 5 * time.Millisecond })
	plain, gpu := labelled(t, fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
  special: { webhook: { verify: { scheme: none } }, runs_on: { gpu: 'yes' } }
triggers:
  pinned: { connection: in, runs_on: { gpu: 'yes' }, run: { http: { url: %[1]s/pinned, body: "/1" } } }
  anywhere: { connection: in, run: { http: { url: %[1]s/anywhere, body: "/1" } } }
  bounded: { connection: in, concurrency: [ { limit: 1 } ], run: { http: { url: %[1]s/bounded, body: "/1" } } }
  inherits: { connection: special, run: { http: { url: %[1]s/inherits, body: "/1" } } }
`, log.URL))
	await(t, "every daemon has its share", 15*time.Second, func() bool {
		a, b, c := plain[0].self(), plain[1].self(), gpu.self()
		// 32 partitions of the default pool for three, and 32 of the other pool for one.
		return a.Partitions >= 10 && b.Partitions >= 10 && c.Partitions >= 42 && slices.Contains(c.Connections, "special")
	})
	const n = 60
	for i := range n {
		plain[i%2].mustPost("in", fmt.Sprint("e", i), []byte("{}"))
	}
	plain[0].mustPost("special", "s", []byte("{}"))
	for _, trigger := range []string{"pinned", "anywhere", "bounded"} {
		plain[0].awaitTurns(trigger, "all are done", 20*time.Second, allFinal(n))
	}
	plain[0].awaitTurns("inherits", "it is done", 20*time.Second, allFinal(1))
	id, ran := gpu.self().ID, map[string]int{}
	for _, key := range append(keysWith("in:pinned:e", n), "special:inherits:s") {
		for _, e := range plain[0].oneEnd(key)[1:] { // whoever took the event has opened it
			if e.Daemon != id {
				t.Errorf("%s ran on %s, which has not the label", key, e.Daemon)
			}
		}
	}
	for _, key := range keysWith("in:anywhere:e", n) {
		h := plain[0].oneEnd(key)
		ran[h[len(h)-1].Daemon]++
	}
	if len(ran) != 3 {
		t.Errorf("what may run anywhere ran on %v", ran)
	}
	var end time.Time
	for _, a := range log.all() {
		if !strings.HasPrefix(a.key, "in:bounded:") {
			continue
		}
		if a.begin.Before(end) {
			t.Errorf("%s began before the one before it had ended, although one may run at a time", a.key)
		}
		end = a.end
	}

	gpu.p.kill()
	plain[0].mustPost("in", "later", []byte("{}"))
	plain[1].awaitTurns("anywhere", "the work of the dead daemon goes on", 15*time.Second, allFinal(n+1))
	if d := plain[1].detail("in:pinned:later"); d.State != "queued" {
		t.Errorf("without a daemon that may run it, the turn is %s", d.State)
	}
	gpu.restart()
	plain[1].awaitTurns("pinned", "it runs when such a daemon is back", 15*time.Second, allFinal(n+1))
}

func keysWith(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, prefix+fmt.Sprint(i))
	}
	return keys
}
