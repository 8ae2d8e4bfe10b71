package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// latches hold actions until they are opened, by the request's body.
type latches struct {
	mu sync.Mutex
	m  map[string]chan struct{}
}

func (l *latches) of(body string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]chan struct{}{}
	}
	if l.m[body] == nil {
		l.m[body] = make(chan struct{})
	}
	return l.m[body]
}

func (l *latches) wait(body string) { <-l.of(body) }
func (l *latches) open(body string) { close(l.of(body)) }

// P15: overlap is one rule, whoever starts: an event, an operator, a schedule.
func TestOverlap(t *testing.T) {
	var gates latches
	w := newWorld(t)
	w.gate = gates.wait
	trigger := func(rule string) string {
		return fmt.Sprintf("  %s: { connection: %s, overlap: %s, run: { http: { url: %s/effect, body: '${{ event.connection }} %s ${{ event.id }}' } } }\n",
			rule, rule, rule, w.URL, rule)
	}
	in := newInstallation(t, "", `
connections:
  queue: { webhook: { verify: { scheme: none } } }
  skip: { webhook: { verify: { scheme: none } } }
  allow: { webhook: { verify: { scheme: none } } }
triggers:
  tick: { cron: { schedule: '@every 1s', timezone: UTC }, run: { http: { url: `+w.URL+`/effect, body: tick } } }
`+trigger("queue")+trigger("skip")+trigger("allow"))
	in.run()
	starts := map[string]func(trigger, id string){
		"event":  func(trigger, id string) { in.mustPost(trigger, id, []byte(`{}`)) },
		"manual": func(trigger, id string) { in.must("fire", trigger, "--id", id) },
	}
	second := map[string]string{"queue": "queued", "skip": "skipped", "allow": "running"}
	for how, start := range starts {
		for rule, want := range second {
			t.Run(how+" "+rule, func(t *testing.T) {
				connection, a, b := rule, rule+"-"+how+"-a", rule+"-"+how+"-b"
				if how == "manual" {
					connection = how
				}
				start(rule, a)
				in.turn(rule, a, "running")
				start(rule, b)
				turn := in.turn(rule, b, want)
				blocker := connection + ":" + rule + ":" + a
				if names := strings.Contains(turn.Error, blocker); names != (rule == "skip") {
					t.Errorf("the second turn says %q; the blocking turn is %s", turn.Error, blocker)
				}
				gates.open(connection + " " + rule + " " + a)
				gates.open(connection + " " + rule + " " + b)
				in.turn(rule, a, "done")
				if rule != "skip" {
					in.turn(rule, b, "done")
				} else if n := w.byKey()[connection+":skip:"+b]; n != 0 {
					t.Errorf("a skipped turn ran")
				}
			})
		}
	}
	t.Run("an id fires one trigger", func(t *testing.T) {
		if _, stderr, code := in.command("fire", "allow", "--id", "queue-manual-a"); code != 1 || !strings.Contains(stderr, `has fired trigger "queue" already`) {
			t.Errorf("the id of another trigger: exit code %d, %s", code, stderr)
		}
		if again := in.must("fire", "queue", "--id", "queue-manual-a"); !strings.Contains(again, "fired before") {
			t.Errorf("the same again: %s", again)
		}
	})
	t.Run("schedule skip", func(t *testing.T) { // the default of schedules
		first := in.awaitTurns("tick", "a tick is skipped", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "skipped") > 0 })
		running := first[len(first)-1]
		if running.State != "running" {
			t.Fatalf("the first tick is %+v", running)
		}
		in.must("fire", "tick", "--id", "by-hand")
		for _, ts := range [][]console.TurnInfo{first[:1], {in.turn("tick", "by-hand", "skipped")}} {
			if !strings.Contains(ts[0].Error, running.Key) {
				t.Errorf("skipped turn says %q, the blocking turn is %s", ts[0].Error, running.Key)
			}
		}
		gates.open("tick")
		in.turn("tick", running.EventID, "done")
	})
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  work: { connection: hook, thread: event.payload.thread, run: { http: { url: %[1]s/effect, body: '${{ event.payload.thread }}/${{ event.payload.n }}' } } }
  drop: { connection: hook, while_paused: skip, run: { http: { url: %[1]s/dropped, body: 'drop/${{ event.payload.n }}' } } }
`, w.URL))
	p := in.run()
	paused := asJSON[console.TriggerInfo](in, "triggers", "pause", "work", "--until", "1h", "--note", "database move")
	if !paused.Paused || paused.PauseNote != "database move" || paused.PausedUntil == nil || time.Until(*paused.PausedUntil) < 59*time.Minute {
		t.Errorf("pause: %+v", paused)
	}
	in.must("triggers", "pause", "drop")
	for n := range 6 {
		id, body := numbered(n%2, n)
		in.mustPost("hook", id, body)
	}
	in.awaitTurns("work", "six held turns", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "held") == 6 })
	in.awaitTurns("drop", "six skipped turns", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "skipped") == 6 })
	mustContain(t, "fire of a paused trigger", in.must("fire", "work", "--id", "by-hand", "--data", `{"thread":"t9","n":0}`), "paused", "held", "database move")
	p.kill()
	in.run() // a pause survives
	mustContain(t, "triggers list", in.must("triggers", "list"), "database move", "paused until")
	if ts := in.turns("work"); count(ts, "held") != 7 || len(w.all()) != 0 {
		t.Fatalf("after a restart: %+v, effects %v", ts, w.all())
	}
	if again := asJSON[console.TriggerInfo](in, "triggers", "resume", "work"); again.Paused {
		t.Errorf("resume: %+v", again)
	}
	in.mustPost("hook", "t0-6", []byte(`{"thread":"t0","n":6}`)) // behind what was held
	in.awaitTurns("work", "all turns", 20*time.Second, allFinal(8))
	if effects := w.all(); len(effects) != 8 {
		t.Errorf("%d effects, want 8", len(effects))
	}
	checkOrder(t, w.all())
	if n := count(in.turns("drop"), "skipped"); n != 7 {
		t.Errorf("%d turns of drop are skipped, want 7", n)
	}

	in.must("triggers", "pause", "work", "--until", "2s")
	in.mustPost("hook", "t1-8", []byte(`{"thread":"t1","n":8}`))
	in.turn("work", "t1-8", "held")
	in.turn("work", "t1-8", "done") // the pause ends by itself
	if row := in.trigger("work"); row.Paused || row.Held != 0 {
		t.Errorf("after --until: %+v", row)
	}
}

// trigger is a row of `triggers list`.
func (in *installation) trigger(name string) console.TriggerInfo {
	in.t.Helper()
	for _, row := range asJSON[[]console.TriggerInfo](in, "triggers", "list") {
		if row.Name == name {
			return row
		}
	}
	in.t.Fatalf("no trigger %s in the list", name)
	return console.TriggerInfo{}
}

func TestCancel(t *testing.T) {
	in := newInstallation(t, "", "")
	// The command ignores SIGTERM and so does its child: only killing the whole group ends them.
	script := in.script("stay.sh", "trap '' TERM\necho $$ >> "+in.dir+"/pids\nsh -c 'trap \"\" TERM; echo $$ >> "+in.dir+"/pids; sleep 600' &\nwait\nsleep 600\n")
	in.write(in.read() + fmt.Sprintf(`
connections:
  hook: { webhook: { verify: { scheme: none } } }
  other: { webhook: { verify: { scheme: none } } }
triggers:
  stay: { connection: hook, overlap: queue, run: { exec: { command: [%s], kill_after: 100ms } } }
  fail: { connection: other, retry: { backoff: { initial: 1h, max: 1h } }, run: { exec: { command: ['false'] } } }
`, script))
	in.run()
	in.mustPost("hook", "running", []byte(`{}`))
	in.mustPost("hook", "queued", []byte(`{}`))
	in.mustPost("other", "failing", []byte(`{}`))
	var pids []int
	await(t, "the command and its child run", 20*time.Second, func() bool {
		b, err := os.ReadFile(filepath.Join(in.dir, "pids"))
		pids = nil
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return err == nil && len(pids) == 2
	})
	for _, c := range []struct{ trigger, event, state string }{
		{"stay", "queued", "queued"}, {"fail", "failing", "failed"}, {"stay", "running", "running"},
	} {
		turn := in.turn(c.trigger, c.event, c.state)
		got := asJSON[console.TurnInfo](in, "turns", "cancel", turn.Key)
		if got.State != "cancelled" || got.Finished == nil || got.Key != turn.Key {
			t.Errorf("cancel of a %s turn: %+v", c.state, got)
		}
		if _, stderr, code := in.command("turns", "cancel", turn.Hash); code != 1 || !strings.Contains(stderr, "cancelled already") {
			t.Errorf("a second cancel: exit code %d, %s", code, stderr)
		}
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d of a cancelled turn is still there: %v", pid, err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(in.dir, "pids")); len(strings.Fields(string(b))) != 2 {
		t.Errorf("the cancelled queued turn ran: %s", b)
	}
	var detail console.TurnDetail
	if err := json.Unmarshal([]byte(in.must("turns", "show", "hook:stay:running", "--json")), &detail); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, h := range detail.History {
		states = append(states, h.State)
	}
	if len(states) == 0 || states[len(states)-1] != "cancelled" {
		t.Errorf("history %v", states)
	}
}

// The limits hold at every moment, as those see it who are called.
func TestConcurrencyLimits(t *testing.T) {
	const events, daemonLimit = 60, 7
	limits := map[string]int{"two": 2, "three": 3, "free": daemonLimit, "all": daemonLimit}
	var mu sync.Mutex
	now, most := map[string]int{}, map[string]int{}
	add := func(name string, d int) {
		mu.Lock()
		defer mu.Unlock()
		now[name] += d
		most[name] = max(most[name], now[name])
	}
	w := newWorld(t)
	w.gate = func(name string) {
		add(name, +1)
		add("all", +1)
		<-time.After(5 * time.Millisecond) // what an action takes, not a wait for a result
		add(name, -1)
		add("all", -1)
	}
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  two: { connection: in, concurrency: [{ limit: 2 }], run: { http: { url: %[1]s/, body: two } } }
  three: { connection: in, concurrency: [{ limit: 7 }, { limit: 3 }], run: { http: { url: %[1]s/, body: three } } }
  free: { connection: in, run: { http: { url: %[1]s/, body: free } } }
`, w.URL))
	in.write(strings.Replace(in.read(), "  drain_timeout:", fmt.Sprintf("  concurrency: %d\n  drain_timeout:", daemonLimit), 1))
	p := in.run()
	post := func(from int) {
		var wg sync.WaitGroup
		for c := range 4 {
			wg.Go(func() {
				for n := from + c; n < from+events/2; n += 4 {
					if !insist(in, fmt.Sprint("e", n), []byte(`{}`)) {
						t.Errorf("event %d is not accepted", n)
					}
				}
			})
		}
		wg.Wait()
	}
	post(0)
	p.stop() // what is queued then is taken up by the next daemon, with the same limits
	in.run()
	post(events / 2)
	ts := in.awaitTurns("", "all turns are final", 30*time.Second, allFinal(3*events))
	if n := count(ts, "done"); n != 3*events {
		t.Errorf("%d of %d turns are done", n, 3*events)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, limit := range limits {
		if most[name] > limit {
			t.Errorf("%s: %d at once, the limit is %d", name, most[name], limit)
		}
	}
	if most["two"] != 2 || most["three"] != 3 || most["all"] != daemonLimit {
		t.Errorf("most at once: %v; the limits were not reached, so this proves nothing", most)
	}
	t.Logf("most at once: %v", most)
}
