package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

const explained = `
connections:
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  all: { connection: hook, run: { http: { url: %[1]s/all } } }
  big: { connection: hook, filter: 'event.payload.user == "ann" && event.payload.n > %[2]d', run: { http: { url: %[1]s/big } } }
  typed: { connection: hook, filter: 'event.payload.n == "5"', run: { http: { url: %[1]s/typed } } }
  absent: { connection: hook, filter: 'event.payload.author == "x"', run: { http: { url: %[1]s/absent } } }
  optional: { connection: hook, filter: 'event.payload.?author.orValue("") == "x"', run: { http: { url: %[1]s/optional } } }
  broken: { connection: hook, filter: 'int(event.payload.user) > 1', run: { http: { url: %[1]s/broken } } }
  threadless: { connection: hook, thread: event.payload.lane, run: { http: { url: %[1]s/threadless } } }
  other: { connection: hook, event: 'order.*', run: { http: { url: %[1]s/other } } }
  off: { connection: hook, enabled: false, run: { http: { url: %[1]s/off } } }
  paused: { connection: hook, run: { http: { url: %[1]s/paused } } }
  busy: { connection: hook, overlap: skip, run: { http: { url: %[1]s/busy, body: busy } } }
`

// P24: every trigger has a verdict on every event, with its reason, and it stays.
func TestExplain(t *testing.T) {
	var gates latches
	w := newWorld(t)
	w.gate = func(body string) {
		if body == "busy" {
			gates.wait(body)
		}
	}
	e := newEditable(t, fmt.Sprintf(explained, w.URL, 10))
	p := e.run()
	e.must("triggers", "pause", "paused", "--note", "later")
	e.mustPost("hook", "first", []byte(`{"n":5,"user":"ann"}`))
	e.turn("busy", "first", "running")
	e.mustPost("hook", "second", []byte(`{"n":5,"user":"ann"}`))
	if a := e.mustPost("hook", "second", []byte(`{"n":50,"user":"ann"}`)); !a.Duplicate {
		t.Errorf("the same id again: %+v", a)
	}
	e.turn("busy", "second", "skipped")
	e.turn("all", "second", "done")

	want := map[string]struct{ verdict, state, reason string }{
		"all":        {"matched", "done", ""},
		"big":        {"filtered", "", "event.payload.n > 10 is false: event.payload.n = 5 (int)"},
		"typed":      {"filtered", "", "an int never equals a string"},
		"absent":     {"error", "", `no such field: "author"`},
		"optional":   {"filtered", "", `"author"`},
		"broken":     {"error", "", "event.payload.user is string"},
		"threadless": {"error", "", `thread: event.payload has no such field: "lane"`},
		"other":      {"filtered", "", `event "order.*" does not match type "webhook.received"`},
		"off":        {"disabled", "", "enabled: false"},
		"paused":     {"matched", "held", "paused"},
		"busy":       {"matched", "skipped", "hook:busy:first"},
	}
	check := func(t *testing.T) (version string) {
		t.Helper()
		ex, got := e.explain("hook/second")
		table := e.must("explain", "hook/second")
		if len(got) != len(want) || ex.Event.ID != "second" || ex.Version == "" {
			t.Errorf("explain: %+v", ex)
		}
		mustContain(t, "explain", table, ex.Version, "hook/second", "VERDICT")
		for name, v := range want {
			g := got[name]
			state, said := "", g.Reason
			if g.Turn != nil {
				state, said = g.Turn.State, said+" "+g.Turn.Error
			}
			if g.Verdict != v.verdict || state != v.state || !strings.Contains(said, v.reason) {
				t.Errorf("%s: %s, turn %q, %q; want %+v", name, g.Verdict, state, said, v)
			}
			if row := rowOf(table, name); !strings.Contains(row, v.verdict) || !strings.Contains(row, v.state) || !strings.Contains(row, g.Reason) {
				t.Errorf("%s in the table: %q", name, row)
			}
		}
		return ex.Version
	}
	version := check(t)
	_, metrics := e.admin("/metrics")
	mustContain(t, "/metrics", metrics, `triggerd_events_duplicate_total{connection="hook"} 1`, `triggerd_verdict_errors_total{trigger="absent"} 2`)

	t.Run("after a change of the configuration", func(t *testing.T) {
		e.set(fmt.Sprintf(explained, w.URL, 1))
		e.reload()
		if now := check(t); now != version {
			t.Errorf("decided under %s, now said to be %s", version, now)
		}
		e.mustPost("hook", "third", []byte(`{"n":5,"user":"ann"}`))
		e.turn("big", "third", "done")
		if ex, got := e.explain("third"); ex.Version == version || got["big"].Verdict != "matched" {
			t.Errorf("an event after the change: %+v by %s", got["big"], ex.Version)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		gates.open("busy")
		e.turn("busy", "first", "done")
		p.kill()
		e.run()
		if now := check(t); now != version {
			t.Errorf("decided under %s, now said to be %s", version, now)
		}
	})
	t.Run("an event that is not there", func(t *testing.T) {
		if _, stderr, code := e.command("explain", "hook/nothing"); code != 1 || !strings.Contains(stderr, "not found") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
}

// rowOf is the table's line that begins with name.
func rowOf(table, name string) string {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == name {
			return line
		}
	}
	return ""
}

// Design §8: what programs may rely on in lists.
func TestListShapes(t *testing.T) {
	w := newWorld(t)
	var mended atomic.Bool
	w.status = func(body string) int {
		if strings.Contains(body, "bad") && !mended.Load() {
			return 400
		}
		return 200
	}
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  work: { connection: hook, thread: event.payload.user, run: { http: { url: %s/effect } } }
`, w.URL))
	in.run()
	for _, id := range []string{"a", "b", "c", "d", "bad"} {
		in.mustPost("hook", id, fmt.Appendf(nil, `{"user":"ann","id":%q}`, id))
	}
	ts := in.awaitTurns("work", "five turns", 20*time.Second, allFinal(5))

	rows := func(args ...string) []map[string]any {
		t.Helper()
		var out []map[string]any
		if err := json.Unmarshal([]byte(in.must(append(args, "--json")...)), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	events := rows("events", "list", "--connection", "hook")
	if len(events) != 5 {
		t.Fatalf("events: %v", events)
	}
	e := events[0]
	if e["connection"] != "hook" || e["id"] != "bad" || e["type"] != "webhook.received" || e["seq"].(float64) <= events[1]["seq"].(float64) {
		t.Errorf("events are not newest first with their fields: %v", events[:2])
	}
	for _, field := range []string{"time", "received"} {
		if _, err := time.Parse(time.RFC3339Nano, e[field].(string)); err != nil {
			t.Error(err)
		}
	}
	turns := rows("turns", "list")
	if len(turns) != 5 {
		t.Fatalf("turns: %v", turns)
	}
	for i, turn := range turns {
		id := turn["event_id"].(string)
		bad := id == "bad"
		want := map[string]any{"key": "hook:work:" + id, "connection": "hook", "trigger": "work", "thread": "ann", "attempt": 1.0, "hash": ts[i].Hash, "state": "done"}
		if bad {
			want["state"] = "dead"
		}
		for field, v := range want {
			if turn[field] != v {
				t.Errorf("turn %s: %s is %v, want %v", id, field, turn[field], v)
			}
		}
		for _, field := range []string{"opened", "finished"} {
			if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(turn[field])); err != nil {
				t.Errorf("turn %s: %s: %v", id, field, err)
			}
		}
		if _, has := turn["error"]; has != bad {
			t.Errorf("turn %s: error %v", id, turn["error"])
		}
		if outcome, ok := turn["outcome"].(map[string]any); !ok || outcome["status"] != map[bool]float64{true: 400, false: 200}[bad] {
			t.Errorf("turn %s: outcome %v", id, turn["outcome"])
		}
	}

	t.Run("limit, after and filters", func(t *testing.T) {
		page := rows("events", "list", "--limit", "2")
		next := rows("events", "list", "--limit", "2", "--after", fmt.Sprint(page[1]["seq"]))
		if len(page) != 2 || len(next) != 2 || !slices.Equal(ids(append(page, next...), "id"), ids(events[:4], "id")) {
			t.Errorf("pages of events: %v %v", page, next)
		}
		tp := rows("turns", "list", "--limit", "2")
		tn := rows("turns", "list", "--limit", "3", "--after", tp[1]["hash"].(string))
		if len(tp) != 2 || !slices.Equal(ids(append(tp, tn...), "hash"), ids(turns, "hash")) {
			t.Errorf("pages of turns: %v %v", tp, tn)
		}
		if dead := rows("turns", "list", "--state", "dead"); len(dead) != 1 || dead[0]["event_id"] != "bad" {
			t.Errorf("dead turns: %v", dead)
		}
		if none := in.must("turns", "list", "--state", "held", "--json"); strings.TrimSpace(none) != "[]" {
			t.Errorf("an empty list prints %q", none)
		}
		if lines := strings.Split(strings.TrimSpace(in.must("turns", "list", "--limit", "3", "--jsonl")), "\n"); len(lines) != 3 || !json.Valid([]byte(lines[2])) {
			t.Errorf("--jsonl: %q", lines)
		}
	})
	t.Run("one thing is one object", func(t *testing.T) {
		turn := asJSON[console.TurnDetail](in, "turns", "show", turns[1]["hash"].(string)[:10])
		event := asJSON[console.EventDetail](in, "events", "show", "hook/a")
		if turn.Key != turns[1]["key"] || len(turn.History) == 0 || len(event.Turns) != 1 || strings.Join(strings.Fields(string(event.Payload)), "") != `{"user":"ann","id":"a"}` {
			t.Errorf("turn %+v\nevent %+v", turn, event)
		}
	})
	t.Run("retry is a new turn linked to the first", func(t *testing.T) {
		mended.Store(true)
		again := asJSON[console.TurnInfo](in, "turns", "retry", "hook:work:bad")
		if again.Key != "hook:work:bad#1" || again.ReplayOf != "hook:work:bad" {
			t.Errorf("retry: %+v", again)
		}
		in.awaitTurns("work", "the retry is done", 20*time.Second, func(ts []console.TurnInfo) bool { return ts[0].Key == again.Key && ts[0].State == "done" })
	})
}

func ids(rows []map[string]any, field string) []string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprint(r[field]))
	}
	return out
}

func TestSchemaAndVersion(t *testing.T) {
	out, _, code := cli(t, t.TempDir(), nil, "schema")
	checkedIn, err := os.ReadFile("../configs/schema.json")
	if err != nil || code != 0 || out != string(checkedIn) {
		t.Errorf("`triggerd schema` (exit code %d, %d bytes) is not configs/schema.json (%d bytes, %v)", code, len(out), len(checkedIn), err)
	}
	out, _, code = cli(t, t.TempDir(), nil, "version", "--json")
	var v struct{ Version, Go, NATSServer, Platform string }
	if err := json.Unmarshal([]byte(strings.ReplaceAll(out, "nats_server", "natsserver")), &v); err != nil || code != 0 {
		t.Fatal(err, code)
	}
	if v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || !strings.HasPrefix(v.NATSServer, "v2.") || !strings.Contains(v.Platform, "/") {
		t.Errorf("version: %+v", v)
	}
}
