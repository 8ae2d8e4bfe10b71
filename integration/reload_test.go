package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/failpoint"
)

// P17, P22: eight clients post without a pause while the configuration is replaced by file change, SIGHUP and command. Each version changes the
// very connection and trigger that the load goes through.
func TestReloadUnderLoad(t *testing.T) {
	w := newWorld(t)
	body := func(version int) string {
		return fmt.Sprintf(`
connections:
  in: { webhook: { max_body: %dKiB, verify: { scheme: none } } }
triggers:
  work: { connection: in, timeout: %ds, thread: event.payload.thread, run: { http: { url: %s/effect } } }
`, 100+version, 60+version, w.URL)
	}
	e := newEditable(t, body(0))
	p := e.run()
	var stop atomic.Bool
	var mu sync.Mutex
	var accepted []string
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id, payload := numbered(c, n)
				a, err := e.post("in", id, payload)
				if err != nil || a.Status != 202 || a.Duplicate {
					t.Errorf("post %s during a reload: %+v, %v", id, a, err)
					return
				}
				mu.Lock()
				accepted = append(accepted, id)
				mu.Unlock()
			}
		})
	}
	version := 0
	next := func() { version++; e.set(body(version)) }
	// reloaded lets one way of reloading make a new version live. The watch may be faster on a busy machine: then another version is due.
	reloaded := func(how string, reload func() bool) {
		for range 20 {
			if next(); reload() {
				return
			}
		}
		t.Errorf("%s never found a change", how)
	}
	for range 3 {
		seen := len(p.lines("configuration reloaded"))
		next()
		p.awaitLog("configuration reloaded", seen+1) // the file watch
		reloaded("SIGHUP", func() bool {
			seen := len(p.lines("reloaded"))
			p.signal(syscall.SIGHUP)
			return p.awaitLog("reloaded", seen+1)[seen]["changed"] == true
		})
		reloaded("the command", func() bool {
			res := e.reload()
			if res.Changed && (strings.Join(res.Connections, " ") != "~in" || strings.Join(res.Triggers, " ") != "~work") {
				t.Errorf("reload: %+v, want a change of in and work", res)
			}
			return res.Changed
		})
	}
	stop.Store(true)
	clients.Wait()
	turns := e.awaitTurns("work", "one final turn for each accepted event", 30*time.Second, allFinal(len(accepted)))
	if n := count(turns, "done"); n != len(accepted) {
		t.Errorf("%d turns are done, %d events were accepted", n, len(accepted))
	}
	effects := w.byKey()
	for _, id := range accepted {
		if n := effects["in:work:"+id]; n != 1 {
			t.Errorf("event %s took effect %d times", id, n)
		}
	}
	if n := e.source("in").Events; n != uint64(len(accepted)) {
		t.Errorf("the connection counted %d events over its reloads, %d were accepted", n, len(accepted))
	}
	t.Logf("%d reloads under load of 8 clients: %d events, all accepted, one effect each", version, len(accepted))
}

// reloadAs is reload, and tells what changed also where the file watch was faster than the command.
func (e *editable) reloadAs(p *process) console.ReloadResult {
	e.t.Helper()
	res := e.reload()
	if seen := p.lines("configuration reloaded"); !res.Changed && len(seen) > 0 {
		last := seen[len(seen)-1]
		for _, list := range []struct {
			field string
			to    *[]string
		}{{"connections", &res.Connections}, {"triggers", &res.Triggers}} {
			for _, name := range last[list.field].([]any) {
				*list.to = append(*list.to, name.(string))
			}
		}
	}
	return res
}

const diffBase = `
connections:
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  all: { connection: hook, run: { http: { url: %[1]s/effect } } }
  narrow: { connection: hook, filter: 'event.payload.n > %[2]d', run: { http: { url: %[1]s/effect } } }
`

// P22: what a reload must leave alone.
func TestReloadIsADiff(t *testing.T) {
	w := newWorld(t)
	base := func(n int) string { return fmt.Sprintf(diffBase, w.URL, n) }
	yearly := base(10) + "  tick: { cron: { schedule: '0 0 1 1 *', timezone: UTC }, run: { exec: { command: ['true'] } } }\n"
	e := newEditable(t, yearly)
	p := e.run()
	for n := range 3 {
		e.mustPost("hook", fmt.Sprint("e", n), []byte(`{"n":5}`))
	}
	e.awaitTurns("all", "three turns", 20*time.Second, allFinal(3))
	before := e.source("hook")
	first, verdicts := e.explain("hook/e0")
	if verdicts["narrow"].Verdict != "filtered" {
		t.Fatalf("verdicts before: %+v", verdicts)
	}

	t.Run("comments and order change nothing", func(t *testing.T) {
		version := e.reload().Version
		e.set("# a comment\n" + yearly + "# another\n")
		if res := e.reload(); res.Changed || len(res.Connections)+len(res.Triggers) > 0 || res.Version != version {
			t.Errorf("reload: %+v, want no change of version %s", res, version)
		}
	})
	t.Run("a changed schedule starts from now", func(t *testing.T) {
		// The stored position is that of the daemon's start; slots of the new schedule lie between it and now.
		started, _ := time.Parse(time.RFC3339, p.lines("triggerd is ready")[0]["time"].(string))
		await(t, "some seconds that a backfill would fill", 10*time.Second, func() bool { return time.Since(started) > 2500*time.Millisecond })
		changed := time.Now()
		e.set(base(10) + "  tick: { cron: { schedule: '@every 1s', timezone: UTC }, run: { exec: { command: ['true'] } } }\n")
		if res := e.reloadAs(p); strings.Join(res.Connections, " ") != "~tick" {
			t.Errorf("reload: %+v, want only tick changed", res)
		}
		e.awaitTurns("tick", "two ticks", 20*time.Second, func(ts []console.TurnInfo) bool { return len(ts) >= 2 })
		for _, ev := range asJSON[[]console.EventInfo](e.installation, "events", "list", "--connection", "tick", "--limit", "-1") {
			if !ev.Time.After(changed) || payloadOf[cron.Tick](e.installation, "tick", ev.ID).CatchUp {
				t.Errorf("slot %s was filled in, the schedule changed at %s", ev.ID, changed)
			}
		}
	})
	t.Run("a widened filter does not replay the past", func(t *testing.T) {
		e.set(base(0))
		if res := e.reloadAs(p); strings.Join(res.Connections, " ") != "-tick" || strings.Join(res.Triggers, " ") != "-tick ~narrow" {
			t.Errorf("reload: %+v", res)
		}
		e.mustPost("hook", "e3", []byte(`{"n":5}`))
		e.turn("narrow", "e3", "done")
		if ts := e.turns("narrow"); len(ts) != 1 {
			t.Errorf("narrow has %d turns, want that of e3 alone", len(ts))
		}
		ex, v := e.explain("hook/e0")
		if v["narrow"].Verdict != "filtered" || ex.Version != first.Version {
			t.Errorf("e0 is explained by version %s as %+v, want filtered by %s", ex.Version, v["narrow"], first.Version)
		}
		if ex, v := e.explain("hook/e3"); v["narrow"].Verdict != "matched" || ex.Version == first.Version {
			t.Errorf("e3 is explained by version %s as %+v, want matched by a newer one than %s", ex.Version, v["narrow"], first.Version)
		}
	})
	t.Run("unchanged connections keep running", func(t *testing.T) {
		after := e.source("hook")
		if after.Events != before.Events+1 || after.State != "running" {
			t.Errorf("status after the reloads: %+v, before: %+v", after, before)
		}
	})
	t.Run("a restart decides and explains the same", func(t *testing.T) {
		p.stop()
		e.run()
		ex, v := e.explain("hook/e0")
		if v["narrow"].Verdict != "filtered" || ex.Version != first.Version || len(e.turns("narrow")) != 1 {
			t.Errorf("after a restart e0 is %+v by %s", v["narrow"], ex.Version)
		}
	})
}

// P21, P22: a configuration with problems is refused whole.
func TestReloadRefused(t *testing.T) {
	w := newWorld(t)
	good := fmt.Sprintf(diffBase, w.URL, 10)
	e := newEditable(t, good)
	p := e.run()
	e.mustPost("hook", "before", []byte(`{"n":1}`))
	version := e.reload().Version
	e.set(strings.Replace(good, "connection: hook, filter", "conection: hook, filter", 1) + "  broken: { connection: nowhere, run: { exec: { command: [x], kill_after: soon } } }\n")
	problems := []string{"conection", "did you mean", "triggers.broken.connection", "kill_after", e.config + ":"}

	_, stderr, code := e.command("reload", "--socket", e.socket())
	if code != 1 {
		t.Errorf("reload of a bad file: exit code %d", code)
	}
	mustContain(t, "reload", stderr, problems...)
	p.signal(syscall.SIGHUP)
	line := p.awaitLog("reload refused, the configuration before it stays in force", 1)[0]
	mustContain(t, "log", line["error"].(string), problems...)
	status, body := e.admin("/readyz?verbose")
	var ready console.Readiness
	if err := json.Unmarshal([]byte(body), &ready); err != nil || status != 200 || !ready.Ready {
		t.Errorf("/readyz: %d %s", status, body)
	}
	mustContain(t, "/readyz?verbose", ready.ConfigError, problems...)
	if _, metrics := e.admin("/metrics"); !strings.Contains(metrics, "triggerd_reload_failures_total") || strings.Contains(metrics, "triggerd_reload_failures_total 0") {
		t.Error("the refusals are not counted in /metrics")
	}
	e.mustPost("hook", "meanwhile", []byte(`{"n":11}`)) // the old version is in force
	e.turn("narrow", "meanwhile", "done")

	e.set(good)
	if res := e.reload(); res.Changed || res.Version != version {
		t.Errorf("reload of the old file: %+v, want version %s", res, version)
	}
	if _, body := e.admin("/readyz?verbose"); strings.Contains(body, "config_error") {
		t.Errorf("/readyz still tells of the refused file: %s", body)
	}
}

// P22: turns of a trigger that is taken out wait for it.
func TestReloadRemovesTrigger(t *testing.T) {
	w := newWorld(t)
	open := make(chan struct{})
	w.gate = func(string) { <-open }
	with := fmt.Sprintf(`
connections:
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  slow: { connection: hook, concurrency: [{ limit: 1 }], overlap: queue, run: { http: { url: %s/effect, body: '${{ event.id }}' } } }
`, w.URL)
	e := newEditable(t, with)
	e.run()
	for n := range 4 {
		e.mustPost("hook", fmt.Sprint("e", n), []byte(`{}`))
	}
	e.turn("slow", "e0", "running")
	e.awaitTurns("slow", "three wait", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "queued") == 3 })
	e.set("connections:\n  hook: { webhook: { verify: { scheme: none } } }\n")
	e.reload()
	e.awaitTurns("slow", "the waiting turns are held", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "held") == 3 })
	close(open) // the one that runs goes on
	e.turn("slow", "e0", "done")
	e.mustPost("hook", "ownerless", []byte(`{}`))
	if held := e.turn("slow", "e2", "held"); !strings.Contains(held.Error, "not configured") {
		t.Errorf("held turn says %q", held.Error)
	}
	e.set(with)
	e.reload()
	e.awaitTurns("slow", "all are done", 20*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 4 && len(ts) == 4 })
	var order []string
	for _, f := range w.all() {
		order = append(order, f.body)
	}
	if got := strings.Join(order, " "); got != "e0 e1 e2 e3" {
		t.Errorf("effects %q, want the held turns in order and nothing for the event without a trigger", got)
	}
}

// A secret's file is read again when it changes: for checking senders and for actions, with no reload at all.
func TestRotatedSecret(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", fmt.Sprintf(`
secrets:
  token: { file: token }
connections:
  hook: { webhook: { verify: { scheme: bearer, secrets: [token] } } }
triggers:
  send: { connection: hook, run: { http: { url: %s/effect, headers: { Idempotency-Key: 'got ${{ secrets.token }}' } } } }
`, w.URL))
	file := filepath.Join(in.dir, "token")
	writeFile(t, file, "first-token\n")
	in.run()
	for n, token := range []string{"first-token", "second-token", "third-token-"} {
		writeFile(t, file, token+"\n") // the last two have the same length
		id := fmt.Sprint("e", n)
		in.mustPost("hook", id, []byte(`{}`), "Authorization", "Bearer "+token)
		in.turn("send", id, "done")
		if w.byKey()["got "+token] != 1 {
			t.Errorf("the action did not send the present value of the secret: %v", w.byKey())
		}
		if a, err := in.post("hook", "x", []byte(`{}`), "Authorization", "Bearer other-token-"); err != nil || a.Status != 401 {
			t.Errorf("wrong token: %+v, %v", a, err)
		}
	}
	if a, err := in.post("hook", "x", []byte(`{}`), "Authorization", "Bearer first-token"); err != nil || a.Status != 401 {
		t.Errorf("replaced token: %+v, %v", a, err)
	}
}

// P22: an event that was stored under one configuration and is decided after a restart with another is decided by the one that it was stored under.
func TestOldVersionDecidesOldEvents(t *testing.T) {
	w := newWorld(t)
	e := newEditable(t, fmt.Sprintf(diffBase, w.URL, 0))
	e.binary = failpointBinary
	p := e.run("TRIGGERD_FAILPOINT=" + failpoint.AfterAppend + ":1")
	if a, err := e.post("hook", "old", []byte(`{"n":5}`)); err == nil {
		t.Fatalf("the kill point was not reached: %+v", a)
	}
	<-p.done
	e.set(fmt.Sprintf(diffBase, w.URL, 100))
	e.run()
	e.turn("narrow", "old", "done")
	e.mustPost("hook", "new", []byte(`{"n":5}`))
	e.turn("all", "new", "done")
	old, v := e.explain("hook/old")
	now, u := e.explain("hook/new")
	if v["narrow"].Verdict != "matched" || u["narrow"].Verdict != "filtered" || old.Version == now.Version {
		t.Errorf("old event: %+v by %s; new event: %+v by %s", v["narrow"], old.Version, u["narrow"], now.Version)
	}
}
