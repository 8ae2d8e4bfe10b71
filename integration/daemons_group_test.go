package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// Helpers for tests that do not ask who owns what: a daemon's share of the work is known from what it has done.

// together runs subtests at the same time, however few the -parallel flag allows: they wait for the same things to happen, each in its own world.
func together(t *testing.T, cases map[string]func(*testing.T)) {
	t.Helper()
	var wg sync.WaitGroup
	for name, test := range cases {
		wg.Go(func() { t.Run(name, test) })
	}
	wg.Wait()
}

// newGroup starts n daemons and returns when each hears all of them; prepare may change an installation before its daemon starts.
func newGroup(t *testing.T, n int, nats func(i int) string, body string, prepare func(i int, in *installation)) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for i := range n {
		in := newInstallation(t, nats(i), body)
		prepare(i, in)
		f.members = append(f.members, &member{installation: in, f: f})
	}
	for _, m := range f.members {
		m.begin()
	}
	for _, m := range f.members {
		m.p.awaitReady()
	}
	f.acquainted()
	return f
}

// asTheyAre is for newGroup: installations that nothing needs to be changed about.
func asTheyAre(int, *installation) {}

// part is some daemons of a fleet, to send events to.
func (f *fleet) part(members ...*member) *fleet { return &fleet{t: f.t, members: members} }

// acquainted waits until every daemon has lately heard all of them.
func (f *fleet) acquainted() {
	f.t.Helper()
	alive := map[int]bool{}
	for _, m := range f.members {
		alive[m.p.cmd.Process.Pid] = true
	}
	await(f.t, "all daemons hear each other", 20*time.Second, func() bool {
		return !slices.ContainsFunc(f.members, func(m *member) bool {
			fresh := map[int]bool{}
			for _, d := range m.daemons() {
				fresh[d.PID] = alive[d.PID] && d.Age < 3
			}
			return slices.ContainsFunc(slices.Collect(maps.Keys(alive)), func(pid int) bool { return !fresh[pid] })
		})
	})
}

// anyone is a daemon that answers.
func (f *fleet) anyone() *member { return f.other(nil) }

// turnsOf lists a connection's turns as a daemon sees them; nil when it does not answer in time.
func (m *member) turnsOf(connection string) []console.TurnInfo {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	turns, err := m.client().Turns(ctx, console.TurnQuery{Connection: connection, Limit: -1})
	if err != nil {
		return nil
	}
	return turns
}

// finalTurns waits until a connection has n turns, all of them final.
func (f *fleet) finalTurns(connection string, n int, limit time.Duration) (turns []console.TurnInfo) {
	f.t.Helper()
	m := f.anyone()
	defer func() {
		if f.t.Failed() {
			unfinished := slices.DeleteFunc(slices.Clone(turns), func(x console.TurnInfo) bool { return x.Finished != nil })
			f.t.Logf("%d turns of %s, %d of them done, not final: %+v", len(turns), connection, count(turns, "done"), unfinished[:min(len(unfinished), 5)])
			f.t.Logf("daemons: %+v", m.daemons())
			for _, x := range unfinished[:min(len(unfinished), 5)] {
				f.explain(m, x)
			}
		}
	}()
	await(f.t, fmt.Sprintf("%d final turns", n), limit, func() bool {
		turns = m.turnsOf(connection)
		return allFinal(n)(turns)
	})
	return turns
}

// explain says what is known of a turn that should have ended, by whom and since when.
func (f *fleet) explain(m *member, x console.TurnInfo) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d, err := m.client().Turn(ctx, x.Key)
	f.t.Logf("history of %s: %+v, %v", x.Key, d.History, err)
	for _, other := range f.members {
		var unfinished []string
		_, metrics := other.admin("/metrics")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "triggerd_turns{") || strings.HasPrefix(line, "triggerd_lease_epoch") {
				unfinished = append(unfinished, strings.TrimSpace(line))
			}
		}
		f.t.Logf("daemon of process %d: %s", other.p.cmd.Process.Pid, strings.Join(unfinished, "; "))
	}
}

// byID are the daemons that answer, by the ids that they write into turns.
func (f *fleet) byID() map[string]*member {
	by := map[string]*member{}
	for _, m := range f.members {
		if !m.answers() {
			continue
		}
		for _, d := range m.daemons() {
			if d.Self {
				by[d.ID] = m
			}
		}
	}
	return by
}

// runners says who ran the newest turn of each thread that took effect after a moment: who wrote its end.
func (f *fleet) runners(log *effectLog, after time.Time) map[string]*member {
	f.t.Helper()
	newest := map[string]string{} // thread: key
	for _, a := range log.since(after) {
		if a.thread != "" {
			newest[a.thread] = a.key
		}
	}
	by, runs := f.byID(), map[string]*member{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := f.anyone().client()
	for thread, key := range newest {
		d, err := client.Turn(ctx, key)
		if err != nil {
			f.t.Fatalf("turn %s: %v", key, err)
		}
		if h := d.History; len(h) > 0 && final(h[len(h)-1].State) && by[h[len(h)-1].Daemon] != nil {
			runs[thread] = by[h[len(h)-1].Daemon]
		}
	}
	return runs
}

// busiest waits until turns of events that are sent now have ended, and returns the daemon that runs most threads.
func (f *fleet) busiest(log *effectLog) (most *member) {
	f.t.Helper()
	since, runs := time.Now(), map[string]*member{}
	await(f.t, "somebody runs turns", 20*time.Second, func() bool {
		runs = f.runners(log, since)
		return len(runs) >= 5
	})
	threads := map[*member]int{}
	for _, m := range runs {
		threads[m]++
		if threads[m] > threads[most] {
			most = m
		}
	}
	return most
}

// stopAll ends flows and returns all that they sent as one, for the checks.
func stopAll(flows ...*flow) *flow {
	all := &flow{f: flows[0].f, accepted: map[string]time.Time{}, numbers: map[string]int{}}
	for _, l := range flows {
		l.stop()
		maps.Copy(all.accepted, l.accepted)
		maps.Copy(all.numbers, l.numbers)
		all.refusals += l.refusals
	}
	return all
}
