package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// job is a command that notes its pid and attempt in `ran`, starts children, one of them in a session of its own and one orphaned, and waits
// until the file `go` is there; only then it writes `finished`. It never ends at SIGTERM when stubborn.
func job(in *installation, stubborn bool) string {
	trap := ""
	if stubborn {
		trap = "trap '' TERM\n"
	}
	return in.script("job.sh", trap+`
echo $$:$TRIGGERD_ATTEMPT >> ran
[ -e go ] || { sleep 300 & setsid sleep 300 & (sleep 300 &); }
while [ ! -e go ]; do sleep 0.05; done
echo $TRIGGERD_IDEMPOTENCY_KEY >> finished
`)
}

// twoKinds has an http action and the job, one slot each, and what is queued behind them.
func twoKinds(in *installation, w *world, stubborn bool) {
	in.write(in.read() + fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
  cmd: { webhook: { verify: { scheme: none } } }
triggers:
  work:
    connection: in
    concurrency: [ { limit: 1 } ]
    run: { http: { url: %s/effect } }
  job:
    connection: cmd
    concurrency: [ { limit: 1 } ]
    run: { exec: { command: [%s], kill_after: 300ms } }
`, w.URL, job(in, stubborn)))
}

// busy posts events until one turn of each kind runs and one is queued behind it.
func busy(in *installation, held chan struct{}) {
	in.t.Helper()
	in.mustPost("in", "held", []byte("held"))
	arrives(in.t, held)
	in.mustPost("cmd", "j0", []byte("{}"))
	await(in.t, "the command runs", 10*time.Second, func() bool { return len(in.words("ran")) == 1 })
	in.mustPost("in", "behind", []byte("behind"))
	in.mustPost("cmd", "j1", []byte("{}"))
	in.awaitTurns("", "two run, two are queued", 10*time.Second, func(ts []console.TurnInfo) bool {
		return count(ts, "running") == 2 && count(ts, "queued") == 2
	})
}

// allDone wants the four turns of busy done, and each job's end written once.
func allDone(in *installation) {
	in.t.Helper()
	turns := in.awaitTurns("", "all four are done", 20*time.Second, func(ts []console.TurnInfo) bool { return len(ts) == 4 && count(ts, "done") == 4 })
	for _, turn := range turns {
		if turn.Attempt != 1 {
			in.t.Errorf("%s: attempt %d; a stop of the daemon is not the turn's failure", turn.Key, turn.Attempt)
		}
	}
	if got := strings.Join(in.words("finished"), " "); got != "cmd:job:j0 cmd:job:j1" {
		in.t.Errorf("jobs finished: %q, want each once", got)
	}
}

// P17: running turns of both kinds end within drain_timeout; what is queued runs after the next start.
func TestDrainLetsTurnsEnd(t *testing.T) {
	w := newWorld(t)
	release, held := w.hold(t, "held")
	in := newInstallation(t, "", "")
	twoKinds(in, w, false)
	p := in.run()
	busy(in, held)
	p.signal(syscall.SIGTERM)
	p.says("stopping")
	await(t, "nothing is taken in any more", 5*time.Second, func() bool {
		a, err := in.post("in", "late", []byte("late"))
		if err == nil && a.Status == http.StatusAccepted {
			t.Fatal("an event is taken in during the drain")
		}
		return err != nil
	})
	select {
	case <-p.done:
		t.Fatal("the daemon did not wait for the running turns")
	default:
	}
	release()
	in.touch("go")
	p.ended(4*time.Second, 0) // drain_timeout is 5 s: it does not wait for its end
	in.noOrphans(time.Second)
	if n := len(in.words("finished")); n != 1 || len(w.all()) != 1 {
		t.Errorf("%d jobs and %d calls ended during the drain, want the running one of each", n, len(w.all()))
	}
	p = in.run()
	allDone(in)
	if n := len(w.all()); n != 2 {
		t.Errorf("%d calls, want one for each event", n)
	}
	p.stop()
}

// Turns that take longer than drain_timeout are cut short with all their processes, those that ignore SIGTERM too, and run again.
func TestDrainCutsShort(t *testing.T) {
	w := newWorld(t)
	release, held := w.hold(t, "held")
	in := newInstallation(t, "", "")
	in.configure("drain_timeout: 5s", "drain_timeout: 500ms")
	twoKinds(in, w, true)
	p := in.run()
	busy(in, held)
	began := time.Now()
	p.signal(syscall.SIGTERM)
	p.ended(5*time.Second, 0)
	took := time.Since(began)
	if took < 500*time.Millisecond {
		t.Errorf("the daemon ended after %s, before drain_timeout", took)
	}
	if left := in.processes(); len(left) != 0 {
		t.Errorf("processes %v outlive the daemon", left)
	}
	if len(in.words("finished")) != 0 {
		t.Error("the job has finished: it was not cut short")
	}
	release()
	in.touch("go")
	p = in.run()
	allDone(in)
	if ran := in.words("ran"); len(ran) != 3 || !strings.HasSuffix(ran[1], ":1") {
		t.Errorf("jobs ran as %q, want j0 twice, and j1", ran)
	}
	if keys := w.byKey(); keys["in:work:held"] != 2 || keys["in:work:behind"] != 1 {
		t.Errorf("calls %v, want the one that was cut short twice with one key", keys)
	}
	p.stop()
	in.noOrphans(time.Second)
	t.Logf("drain of 500 ms, commands that ignore SIGTERM: ended after %s without a process left", took)
}

// P33: after kill -9 nothing that the daemon has started is left, whatever it did to get away, and the job runs again.
func TestKilledDaemonLeavesNoOrphan(t *testing.T) {
	w := newWorld(t)
	release, held := w.hold(t, "held")
	in := newInstallation(t, "", "")
	twoKinds(in, w, true)
	p := in.run()
	busy(in, held)
	await(t, "the command has started its children", 5*time.Second, func() bool { return len(in.processes()) >= 6 })
	before := len(in.processes())
	p.kill()
	died := time.Now()
	in.noOrphans(2 * time.Second)
	t.Logf("%d processes, gone %s after the kill -9", before, time.Since(died))
	release()
	in.touch("go")
	in.run()
	turns := in.awaitTurns("", "all four are done", 20*time.Second, func(ts []console.TurnInfo) bool { return len(ts) == 4 && count(ts, "done") == 4 })
	if got := strings.Join(in.words("finished"), " "); got != "cmd:job:j0 cmd:job:j1" {
		t.Errorf("jobs finished: %q, want each once; turns %+v", got, turns)
	}
}

// interrupt is Ctrl-C. The daemon must be gone soon, with this exit code, and the next start must find nothing in its way.
func interrupt(p *process, code int) {
	p.in.t.Helper()
	p.signal(os.Interrupt)
	p.ended(3*time.Second, code)
	p.in.noOrphans(2 * time.Second)
}

func TestInterrupt(t *testing.T) {
	t.Run("at any moment of a start", func(t *testing.T) {
		w := newWorld(t)
		in := newInstallation(t, "", oneHook(w))
		began := time.Now()
		in.run().stop()
		whole := time.Since(began)
		outcomes := map[string]int{}
		for n := range 12 {
			p := in.start()
			select {
			case <-time.After(whole * time.Duration(n) / 12): // the moment is what is varied
			case <-p.ready:
			}
			p.signal(os.Interrupt)
			select {
			case <-p.done:
			case <-time.After(5 * time.Second):
				t.Fatalf("not ended within 5 s of a Ctrl-C %d/12 into its start", n)
			}
			if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.ExitStatus() != 0 && ws.Signal() != os.Interrupt {
				t.Errorf("a Ctrl-C %d/12 into the start: %v\n%s", n, p.cmd.ProcessState, tail(p.log.String(), 2000))
			}
			outcomes[p.cmd.ProcessState.String()]++
		}
		in.run()
		in.mustPost("in", "e", []byte("x"))
		everyOneDone(in, w, []string{"e"})
		t.Logf("start takes %s; 12 interrupted starts ended as %v", whole, outcomes)
	})
	t.Run("while it waits for another daemon's silence", func(t *testing.T) {
		w := newWorld(t)
		server := newNATS(t, nil)
		in := newInstallation(t, "  url: "+server.url(), oneHook(w))
		in.run().kill()
		p := in.run()
		if n := partitions(in); n != 0 {
			t.Errorf("it runs %d partitions of a daemon whose silence is not over", n)
		}
		interrupt(p, 0)
	})
	t.Run("idle", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(newWorld(t)))
		began := time.Now()
		interrupt(in.run(), 0)
		interrupt(in.run(), 0)
		t.Logf("two starts and stops took %s", time.Since(began))
	})
	t.Run("again during the drain", func(t *testing.T) {
		w := newWorld(t)
		release, held := w.hold(t, "held")
		in := newInstallation(t, "", "")
		in.configure("drain_timeout: 5s", "drain_timeout: 1m")
		twoKinds(in, w, true)
		p := in.run()
		busy(in, held)
		p.signal(os.Interrupt)
		p.says("stopping")
		again := time.Now()
		interrupt(p, 130)
		t.Logf("ended with all processes %s after the second signal", time.Since(again))
		release()
		in.touch("go")
		in.run()
		in.awaitTurns("", "all four are done", 20*time.Second, func(ts []console.TurnInfo) bool { return len(ts) == 4 && count(ts, "done") == 4 })
	})
}

// Under load, Ctrl-C loses nothing that was accepted and doubles nothing: there is time to drain, so no action is cut short.
func TestInterruptUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.gate = func(string) { <-time.After(rand.N(3 * time.Millisecond)) }
	in := newInstallation(t, "", oneHook(w))
	in.run().stop()
	var accepted []string
	var mu sync.Mutex
	for round := range 3 {
		p := in.run()
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprintf("r%d-c%d-%d", round, c, n)
					a, err := in.post("in", id, []byte("x"))
					if err != nil {
						return // it stops taking connections
					}
					mu.Lock()
					if a.Status == http.StatusAccepted {
						accepted = append(accepted, id)
					} else if a.Status != http.StatusServiceUnavailable {
						t.Errorf("post %s: %+v", id, a)
					}
					mu.Unlock()
				}
			})
		}
		await(t, "300 events of this round are accepted", 20*time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(accepted) >= 300*(round+1)
		})
		p.signal(os.Interrupt)
		wg.Wait()
		p.ended(10*time.Second, 0)
	}
	in.run()
	if repeats := everyOneDone(in, w, accepted); repeats != 0 {
		t.Errorf("%d effects were repeated, although every stop had time to drain", repeats)
	}
	t.Logf("%d events accepted over 3 interrupts under load, each took effect once", len(accepted))
}

// A Ctrl-C while the store is away ends as well, after what it gives the store to take the last entries; the next start goes on.
func TestInterruptWhileTheStoreIsAway(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	release, held := w.hold(t, "held")
	server := newNATS(t, nil)
	in := newInstallation(t, "  url: "+server.url(), oneHook(w))
	in.configure("drain_timeout: 5s", "drain_timeout: 500ms")
	p := in.run()
	in.mustPost("in", "held", []byte("held"))
	arrives(t, held)
	server.stop(syscall.SIGKILL)
	p.says("lost the NATS server")
	began := time.Now()
	p.signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		t.Fatal("not ended within 15 s of a Ctrl-C")
	}
	if p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.log.String(), "store unavailable") {
		t.Errorf("ended with %s, want exit code 1 and the reason: not everything could be put away", p.cmd.ProcessState)
	}
	t.Logf("ended with %s after %s", p.cmd.ProcessState, time.Since(began))
	release()
	server.start()
	in.run()
	if repeats := everyOneDone(in, w, []string{"held"}); repeats != 1 {
		t.Errorf("%d repeats, want the one of the call that was cut short", repeats)
	}
}
