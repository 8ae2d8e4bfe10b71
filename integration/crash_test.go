package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/failpoint"
)

// orderedConfig has one webhook and one http action that runs in order within each thread.
func orderedConfig(w *world) string {
	return fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  work:
    connection: in
    thread: event.payload.thread
    retry: { attempts: 10, backoff: { initial: 10ms, max: 100ms } }
    run:
      http:
        url: %s/effect
        body: ${{ event.payload.thread }}/${{ event.payload.n }}
`, w.URL)
}

func numbered(thread, n int) (id string, body []byte) {
	return fmt.Sprintf("t%d-%d", thread, n), fmt.Appendf(nil, `{"thread":"t%d","n":%d}`, thread, n)
}

// checkOnce holds P2, P3 and P6 against the outside world: every accepted event has one finished turn and took effect; only actions cut short
// repeat; within a thread no effect comes before an earlier event's first. It returns how many effects were repeats.
func checkOnce(t *testing.T, in *installation, w *world, accepted []string) (repeats int) {
	t.Helper()
	turns := in.awaitTurns("", "every accepted event has one final turn", 60*time.Second, allFinal(len(accepted)))
	byEvent := map[string]console.TurnInfo{}
	for _, turn := range turns {
		if _, twice := byEvent[turn.EventID]; twice {
			t.Errorf("event %s has two turns", turn.EventID)
		}
		byEvent[turn.EventID] = turn
	}
	effects := w.byKey()
	for _, id := range accepted {
		turn, ok := byEvent[id]
		if !ok || turn.State != "done" {
			t.Errorf("event %s: turn %+v, want it done", id, turn)
		}
		if effects["in:work:"+id] == 0 {
			t.Errorf("event %s is done without an effect", id)
		}
	}
	if len(effects) != len(accepted) {
		t.Errorf("%d events took effect, %d were accepted", len(effects), len(accepted))
	}
	for _, n := range effects {
		repeats += n - 1
	}
	checkOrder(t, w.all())
	return repeats
}

// checkOrder wants first effects in event order within each thread, and no two actions of a thread at the same time.
func checkOrder(t *testing.T, effects []effect) {
	t.Helper()
	seen, last, lastEnd := map[string]bool{}, map[string]int{}, map[string]time.Time{}
	sort.SliceStable(effects, func(a, b int) bool { return effects[a].begin.Before(effects[b].begin) })
	for _, e := range effects {
		thread, num, _ := strings.Cut(e.body, "/")
		n, err := strconv.Atoi(num)
		if err != nil {
			t.Fatalf("effect %q: %v", e.body, err)
		}
		if e.begin.Before(lastEnd[thread]) {
			t.Errorf("thread %s: %d began before the one before it had ended", thread, n)
		}
		lastEnd[thread] = e.end
		if seen[e.key] {
			continue
		}
		seen[e.key] = true
		if prev, ok := last[thread]; ok && n < prev {
			t.Errorf("thread %s: event %d took effect after event %d", thread, n, prev)
		}
		last[thread] = n
	}
}

// send posts events first..first+n-1 of each thread, in order within a thread, from 16 clients. Like a good sender it sends an event again
// until it is accepted. It returns the ids.
func send(t *testing.T, in *installation, threads, first, n int) []string {
	t.Helper()
	var ids []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for thread := range threads {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for i := first; i < first+n; i++ {
				id, body := numbered(thread, i)
				if !insist(in, id, body) {
					t.Errorf("post %s is not accepted", id)
					return
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return ids
}

// insist posts an event until it is accepted, for a minute.
func insist(in *installation, id string, body []byte) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); pauseSender() {
		if a, err := in.post("in", id, body); err == nil && a.Status == 202 {
			return true
		}
	}
	return false
}

// pauseSender is the back-off of a sender that was refused: part of what is simulated, not a way to wait for a result.
func pauseSender() { <-time.After(20 * time.Millisecond) }

func TestKillAtNamedPoints(t *testing.T) {
	for _, point := range []struct {
		name string
		hit  int
	}{
		{failpoint.BeforeAppend, 7},
		{failpoint.AfterAppend, 7},
		{failpoint.AfterOpen, 5},
		{failpoint.ActionStarted, 9},
		{failpoint.ActionFinished, 9},
		{failpoint.EndSent, 9},
		{failpoint.AfterRecord, 9},
	} {
		t.Run(point.name, func(t *testing.T) {
			w := newWorld(t)
			in := newInstallation(t, "", orderedConfig(w))
			in.binary = failpointBinary
			p := in.run(fmt.Sprintf("TRIGGERD_FAILPOINT=%s:%d", point.name, point.hit))
			restarted := make(chan struct{})
			go func() {
				defer close(restarted)
				<-p.done
				in.run()
			}()
			const threads = 4 // at most one action of each is between its effect and its record when the kill comes
			accepted := send(t, in, threads, 0, 10)
			select {
			case <-restarted:
			case <-time.After(30 * time.Second):
				t.Fatal("the kill point was not reached")
			}
			repeats := checkOnce(t, in, w, accepted)
			if repeats > threads {
				t.Errorf("%d effects were repeated, at most %d actions were cut short", repeats, threads)
			}
			t.Logf("%s: %d events, %d repeats", point.name, len(accepted), repeats)
		})
	}
}

// The exec action runs outside of the daemon: a kill between the `running` entry and the word to go must neither lose nor double it,
// and a repeat waits until the former process group is gone.
func TestKillAroundExec(t *testing.T) {
	for _, point := range []string{failpoint.AfterRunning, failpoint.ActionFinished} {
		t.Run(point, func(t *testing.T) {
			in := newInstallation(t, "", "")
			effects := filepath.Join(in.dir, "effects")
			script := filepath.Join(in.dir, "act.sh")
			if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$TRIGGERD_IDEMPOTENCY_KEY $TRIGGERD_ATTEMPT\" >> "+effects+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			in.write(in.read() + fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  work: { connection: in, retry: { attempts: 5, backoff: { initial: 10ms, max: 50ms } }, run: { exec: { command: [%s] } } }
`, script))
			in.binary = failpointBinary
			p := in.run("TRIGGERD_FAILPOINT=" + point + ":2")
			for n := range 3 {
				_, _ = in.post("in", fmt.Sprint("e", n), []byte(`{}`))
			}
			<-p.done
			in.run()
			for n := range 3 {
				in.mustPost("in", fmt.Sprint("e", n), []byte(`{}`))
			}
			in.awaitTurns("work", "three done turns", 30*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 3 })
			b, err := os.ReadFile(effects)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			keys := map[string]int{}
			for _, l := range lines {
				keys[strings.Fields(l)[0]]++
			}
			if len(keys) != 3 || len(lines) > 6 {
				t.Errorf("effects %q: want each of 3 keys, repeated only where an attempt was cut short", lines)
			}
			t.Logf("%s: %d effects for 3 events", point, len(lines))
		})
	}
}

// 2,000 events over 50 threads from 16 clients, while the daemon is killed 30 times and frozen 5 times for one to six seconds.
func TestKillAndFreezeUnderLoad(t *testing.T) {
	const kills, freezes = 30, 5
	w := newWorld(t)
	w.gate = func(string) { <-time.After(rand.N(3 * time.Millisecond)) } // the outside world takes its time
	in := newInstallation(t, "", orderedConfig(w))
	p := in.run()
	// The chaos follows the load: each blow comes when the load has come so far, so that all of them hit it, however fast the machine is.
	chaos := make(chan struct{})
	go func() {
		defer close(chaos)
		for i := range kills + freezes {
			for len(w.all()) < (i+1)*50 { // of 2,000 effects and more
				<-time.After(time.Millisecond)
			}
			<-time.After(rand.N(20 * time.Millisecond)) // and anywhere in what it does
			if i%7 == 6 {                               // five times
				p.signal(syscall.SIGSTOP)
				<-time.After(time.Second + rand.N(5*time.Second))
				p.signal(syscall.SIGCONT)
			} else {
				p.kill()
				p = in.run()
			}
		}
	}()
	accepted := send(t, in, 50, 0, 40)
	<-chaos
	repeats := checkOnce(t, in, w, accepted)
	if repeats > kills*50 {
		t.Errorf("%d effects were repeated; %d kills can cut short one action of each of 50 threads", repeats, kills)
	}
	t.Logf("%d events, %d kills, %d freezes: one final turn each; %d effects repeated because their action was cut short", len(accepted), kills, freezes, repeats)
	client := in.client()
	await(t, "nothing is pending", 10*time.Second, func() bool {
		return !slices.ContainsFunc(client.Ready(t.Context()).Sources, func(s console.SourceStatus) bool { return s.Pending != 0 })
	})
}
