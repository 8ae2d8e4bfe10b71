package configs

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestInterpolation(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"${HOST}:80", "example.com:80"},
		{"${NOPE:-x}", "x"},
		{"${EMPTY:-x}", "x"},
		{"${EMPTY}", ""},
		{"${NOPE:-}", ""},
		{"${NOPE:-a:-b}", "a:-b"},
		{"$$", "$"},
		{"$${HOST}", "${HOST}"},
		{"$$$$", "$$"},
		{"$HOME costs $5 $", "$HOME costs $5 $"},
		{"${{ event.id }} ${HOST}", "${{ event.id }} example.com"},
		{"${{ '${HOST}' + \"}}\" }}${HOST}", "${{ '${HOST}' + \"}}\" }}example.com"},
		{"${{ {'a': {'b': '$$'}} }}${HOST}", "${{ {'a': {'b': '$$'}} }}example.com"},
		{`${{ 'it\'s }}' }}${HOST}`, `${{ 'it\'s }}' }}example.com`},
		{"$${{ literal }} ${HOST}", "$${{ literal }} example.com"},
		{"${{ not closed ${HOST}", "${{ not closed ${HOST}"},
		{"${SELF}", "${HOST}"}, // a value is never looked into
	} {
		got, err := interpolate(c.in, env("HOST", "example.com", "EMPTY", "", "SELF", "${HOST}"))
		if err != nil || got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	for in, want := range map[string]string{
		"a ${NOPE} b":      "variable NOPE is not set",
		"${A":              "${ is not closed",
		"${}":              "${} is not a variable",
		"${1}":             "${1} is not a variable",
		"${A B}":           "${A B} is not a variable",
		"${A:=x}":          "${A:=x} is not a variable",
		"${NOPE:-${HOST}}": "the default of ${NOPE} holds a variable; defaults do not nest",
	} {
		if _, err := interpolate(in, env()); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Run("reach every type, keys and comments stay as they are", func(t *testing.T) {
		c := mustParse(t, rule+"    timeout: ${FIVE}m # ${NOPE}\n    enabled: ${ON:-false}\n    concurrency: [{limit: \"${FIVE}\"}]\n    labels: {$$k: '$$v'}\n    input: >-\n      ${{ event.id }} at ${HOST}\n")
		a := c.Triggers["a"]
		if a.Timeout != Duration(5*time.Minute) || *a.Enabled || a.Concurrency[0].Limit != 5 || a.Labels["$$k"] != "$v" || *a.Input != "${{ event.id }} at example.com" {
			t.Errorf("got %+v", a)
		}
	})
	runBad(t, []badCase{
		{"that are not set", rule + "    labels: {a: \"${NOPE}\", b: \"${NO PE}\"}\n", []string{
			"7:17: triggers.a.labels.a: variable NOPE is not set (set it, or give a default: ${NOPE:-...})",
			"7:31: triggers.a.labels.b: ${NO PE} is not a variable (write $$ for a dollar sign)",
		}},
		{"never show their values", "server: {concurrency: \"${TOKEN}\", listen: \"${TOKEN}\", drain_timeout: \"${TOKEN}\", admin: {listen: \"${TOKEN}\"}}\nnats: {url: \"${TOKEN}\"}\n" + rule + "    overlap: ${TOKEN}\n    enabled: ${TOKEN}\n", []string{
			`1:23: server.concurrency: wants a whole number, this is "${TOKEN}" (write it in decimal digits)`,
			"1:43: server.listen: wants host:port or off (for example 127.0.0.1:8080)",
			`1:70: server.drain_timeout: wants a duration, "${TOKEN}" does not expand to one`,
			"1:98: server.admin.listen: wants unix:<path> (an admin API on TCP is not available yet in this version)",
			"2:13: nats.url[0]: wants a nats:// or tls:// URL (for example nats://nats.example.com:4222)",
			`9:14: triggers.a.overlap: "${TOKEN}" is not one of queue, skip, allow`,
			"10:14: triggers.a.enabled: wants true or false, this is text",
		}},
	})
	t.Run("may be unset when that is allowed, and nothing is said about their values", func(t *testing.T) {
		doc := "server: {listen: \"${A}\", concurrency: \"${A}\", admin: {listen: \"${A}\"}}\nnats: {url: \"${A}\", token: \"${A}\", replicas: \"${A}\"}\nhistory: {events: \"${A}\", turns: \"${A}\"}\ndefaults: {timezone: \"${A}\", triggers: {retry: {backoff: {initial: \"${A}\"}}}}\nsecrets: {s: {env: \"${A}\"}, t: {env: NOPE}, u: {file: \"${A}\"}}\nconnections:\n  in: {webhook: {verify: {scheme: \"${A}\", secrets: [\"${A}\"]}, id: \"${A}\", max_body: \"${A}\"}}\n  c: {cron: {schedule: \"${A}\", timezone: \"${A}\"}}\n  d: {cron: \"@daily\"}\n  f: {files: {paths: \"${A}\", settle: \"${A}\"}}\ntriggers:\n  a:\n    connection: [\"${A}\", in]\n    event: \"${A}\"\n    filter: \"${A}\"\n    thread: {key: \"${A}\", scope: \"${A}\"}\n    overlap: ${A}\n    renamed_from: ${A}\n    retry: {backoff: {max: \"${A}\"}}\n    run: {http: {url: \"${A}\", method: \"${A}\", retry_status: [\"${A}\"]}}\n  b:\n    connection: in\n    run: {exec: {command: [\"${A}/x\", \"${A}\"], exit_codes: {dead: [\"${A}\"], retry: [\"${A}\"]}}}\n  c2:\n    connection: in\n    run: {publish: {subject: \"${A}\"}}\n"
		if _, err := Parse("t.yaml", []byte(doc), Options{Env: env(), AllowUnset: true}); err != nil {
			t.Errorf("got\n%v", err)
		}
	})
}

func TestDefaults(t *testing.T) {
	t.Run("of everything", func(t *testing.T) {
		c := mustParse(t, rule)
		a := c.Triggers["a"]
		if c.Server.Listen != "127.0.0.1:8080" || c.Server.Admin.Listen != "unix:/var/lib/triggerd/admin.sock" || c.Server.DrainTimeout.String() != "10s" {
			t.Errorf("server is %+v", c.Server)
		}
		if n := c.NATS; n.Embedded.Store != "/var/lib/triggerd" || n.Embedded.Sync == "" || n.Embedded.MaxPayload != 1<<20 || n.Replicas != 1 || n.Prefix != "triggerd" {
			t.Errorf("nats is %+v", n)
		}
		if h := c.History; h.Events.String() != "7d" || h.Turns.String() != "30d" || h.EventsSize != 10<<30 {
			t.Errorf("history is %+v", h)
		}
		if a.Timeout.String() != "1h" || a.Retry != (Retry{5, Backoff{Duration(2 * time.Second), Duration(5 * time.Minute)}, Duration(24 * time.Hour)}) || a.OnCrash != "retry" || a.WhilePaused != "hold" || !*a.Enabled || a.Thread.Scope != "trigger" {
			t.Errorf("trigger is %+v", a)
		}
		if got := c.Connections["in"].Webhook.MaxBody; got != 1<<20 {
			t.Errorf("max_body is %d", got)
		}
	})
	t.Run("of triggers reach each key that a trigger leaves out", func(t *testing.T) {
		c := mustParse(t, "defaults: {triggers: {timeout: 5m, retry: {attempts: 2, backoff: {max: 1m}}}}\n"+rule+"    retry: {backoff: {initial: 3s}}\n  b:\n    connection: in\n    timeout: 1s\n"+run)
		a, b := c.Triggers["a"], c.Triggers["b"]
		if a.Timeout.String() != "5m" || a.Retry.Attempts != 2 || a.Retry.Backoff.Max.String() != "1m" || a.Retry.Backoff.Initial.String() != "3s" || b.Timeout.String() != "1s" {
			t.Errorf("got %+v and %+v", a, b)
		}
	})
	t.Run("a zero that is written out is kept", func(t *testing.T) {
		c := mustParse(t, "triggers: {a: {files: {paths: x, max_read: 0}, run: {exec: {command: [x], kill_after: 0s}}}}\n")
		if a := c.Triggers["a"]; a.Files.MaxRead != 0 || c.Connections["a"].Files.MaxRead != 0 || a.Run.Exec.KillAfter != 0 || a.Files.Settle.String() != "2s" {
			t.Errorf("got %+v, %+v", a.Files, a.Run.Exec)
		}
	})
	t.Run("overlap", func(t *testing.T) {
		c := mustParse(t, `defaults: {timezone: UTC}
connections: {in: {push: {}}, tick: {cron: "@hourly"}}
triggers:
  threaded: {connection: in, thread: event.id, run: {exec: {command: [x]}}}
  none: {connection: in, thread: none, run: {exec: {command: [x]}}}
  plain: {connection: in, run: {exec: {command: [x]}}}
  tick: {connection: tick, run: {exec: {command: [x]}}}
  inline: {cron: "@daily", run: {exec: {command: [x]}}}
  mixed: {connection: [tick, in], run: {exec: {command: [x]}}}
  said: {connection: in, overlap: skip, run: {exec: {command: [x]}}}
  both: {connection: tick, thread: event.type, run: {exec: {command: [x]}}}
`)
		for name, want := range map[string]string{"threaded": "queue", "none": "allow", "plain": "allow", "tick": "skip", "inline": "skip", "mixed": "allow", "said": "skip", "both": "queue"} {
			if got := c.Triggers[name].Overlap; got != want {
				t.Errorf("%s: overlap is %s, want %s", name, got, want)
			}
		}
		if c.Triggers["none"].Thread.Key != "" {
			t.Error("thread: none is a key")
		}
	})
	t.Run("turns last at least as long as events", func(t *testing.T) {
		if c := mustParse(t, "history: {events: 60d}\n"); c.History.Turns.String() != "60d" {
			t.Errorf("turns last %s", c.History.Turns)
		}
	})
	t.Run("the zone of schedules", func(t *testing.T) {
		c := mustParse(t, "defaults: {timezone: Europe/Berlin}\nconnections: {a: {cron: ' 0 8 * * * '}, b: {cron: {schedule: '@daily', timezone: UTC}}}\n")
		if a := c.Connections["a"].Cron; a.Timezone != "Europe/Berlin" || a.Schedule != "0 8 * * *" || a.CatchUp != "latest" {
			t.Errorf("got %+v", a)
		}
		if got := c.Connections["b"].Cron.Timezone; got != "UTC" {
			t.Errorf("zone is %s", got)
		}
		c = mustParse(t, "connections: {a: {cron: '@every 5m'}}\n")
		if got := c.Connections["a"].Cron.Timezone; got != "UTC" {
			t.Errorf("zone of an interval is %s", got)
		}
	})
	t.Run("the admin socket moves where its path would be too long, or where there is no store", func(t *testing.T) {
		o := Options{Env: env("XDG_RUNTIME_DIR", "/run/user/7")}
		long, err := Parse("t.yaml", []byte("nats: {embedded: {store: /"+strings.Repeat("x", 100)+"}}\n"), o)
		if err != nil {
			t.Fatal(err)
		}
		external, err := Parse("t.yaml", []byte("nats: {url: nats://x}\n"), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Config{long, external} {
			if got := c.Server.Admin.Listen; !strings.HasPrefix(got, "unix:/run/user/7/triggerd/") || len(got) > 5+socketLimit {
				t.Errorf("socket is %s", got)
			}
		}
		if long.Server.Admin.Listen == external.Server.Admin.Listen {
			t.Error("two installations share a socket")
		}
		if external.NATS.Embedded != (Embedded{}) {
			t.Errorf("embedded is %+v beside an external server", external.NATS.Embedded)
		}
	})
	t.Run("the store is relative to the working directory", func(t *testing.T) {
		c, err := Parse("/etc/triggerd/t.yaml", nil, Options{Env: env()})
		if err != nil {
			t.Fatal(err)
		}
		want, _ := filepath.Abs("data")
		if c.NATS.Embedded.Store != want {
			t.Errorf("got %s, want %s", c.NATS.Embedded.Store, want)
		}
		c, err = Parse("t.yaml", nil, Options{Env: env("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")})
		if err != nil || c.NATS.Embedded.Store != "/var/lib/a" {
			t.Errorf("got %v, %v", c, err)
		}
	})
}

func TestPathsAreRelativeToTheirFile(t *testing.T) {
	c := mustParse(t, `
server: {admin: {listen: "unix:run/admin.sock"}}
nats: {url: nats://x, creds: keys/c, tls: {ca: ./ca.pem}}
secrets: {s: {file: ../keys/s}}
triggers:
  a:
    files: {paths: ["./in/{who}/*.csv", "../up/**", /abs/*, '*.txt'], exclude: ["**/x"]}
    run: {exec: {command: [./b.sh, ./arg], dir: "work/${{ event.type }}"}}
  b: {connection: a, run: {exec: {command: [echo], dir: sub/..}}}
  c: {connection: a, run: {exec: {command: ["bin/${{ event.id // x\n}}"]}}}
  d: {connection: a, run: {exec: {command: ["${{ event.payload.program }}/x"]}}}
`)
	a := c.Triggers["a"]
	for _, got := range []struct{ what, got, want string }{
		{"admin", c.Server.Admin.Listen, "unix:/etc/triggerd/run/admin.sock"},
		{"creds", c.NATS.Creds, "/etc/triggerd/keys/c"},
		{"ca", c.NATS.TLS.CA, "/etc/triggerd/ca.pem"},
		{"secret", c.Secrets["s"].File, "/etc/keys/s"},
		{"glob", a.Files.Paths[0], "/etc/triggerd/in/{who}/*.csv"},
		{"glob above", a.Files.Paths[1], "/etc/up/**"},
		{"absolute glob", a.Files.Paths[2], "/abs/*"},
		{"bare glob", a.Files.Paths[3], "/etc/triggerd/*.txt"},
		{"exclude", a.Files.Exclude[0], "**/x"},
		{"program", a.Run.Exec.Command[0], "/etc/triggerd/b.sh"},
		{"argument", a.Run.Exec.Command[1], "./arg"},
		{"templated dir", a.Run.Exec.Dir, "/etc/triggerd/work/${{ event.type }}"},
		{"program on the PATH", c.Triggers["b"].Run.Exec.Command[0], "echo"},
		{"dir", c.Triggers["b"].Run.Exec.Dir, "/etc/triggerd"},
		{"templated program", c.Triggers["c"].Run.Exec.Command[0], "/etc/triggerd/bin/${{ event.id // x\n}}"},
		{"program from a template", c.Triggers["d"].Run.Exec.Command[0], "${{ event.payload.program }}/x"},
	} {
		if got.got != got.want {
			t.Errorf("%s: got %s, want %s", got.what, got.got, got.want)
		}
	}
	t.Run("a folder's name is no pattern", func(t *testing.T) {
		c, err := Parse("/srv/a[1]/{x}/t.yaml", []byte("connections: {f: {files: {paths: ./*.csv}}}\n"), Options{Env: env()})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.Connections["f"].Files.Paths[0], `/srv/a\[1\]/\{x\}/*.csv`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestInlineSources(t *testing.T) {
	c := mustParse(t, "triggers:\n  hook:\n    webhook: {verify: {scheme: none}}\n    renamed_from: old\n"+run+"  other:\n    connection: hook\n"+run)
	conn := c.Connections["hook"]
	if conn.Webhook == nil || conn.RenamedFrom != "old" || len(c.Triggers["hook"].Connection) != 1 || c.Triggers["hook"].Connection[0] != "hook" {
		t.Errorf("got %+v, %+v", conn, c.Triggers["hook"])
	}
}

func TestUnits(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0s", "0s": "0s", "30s": "30s", "1h30m": "1h30m", "90m": "1h30m", "7d": "7d", "2w": "14d", "1.5d": "36h", "1w2d3h": "219h", "1ms": "1ms", "1µs": "1µs", ".5s": "500ms", "24h": "1d", " 5m ": "5m",
	} {
		d, err := ParseDuration(in)
		if err != nil || d.String() != want {
			t.Errorf("%q: got %v, %v; want %s", in, d, err, want)
			continue
		}
		if back, err := ParseDuration(d.String()); err != nil || back != d {
			t.Errorf("%q: %s reads back as %v, %v", in, d, back, err)
		}
	}
	for _, in := range []string{"", "5", "-5s", "-0", "5 s", "s", "1y", "1M", "1e3s", "+5s", "15251w", "9999999999999999999h", "106752d", "5s ago", "1..5s"} {
		if d, err := ParseDuration(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, d)
		}
	}
	for in, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "64KiB": 64 << 10, "1 MiB": 1 << 20, "1.5GiB": 3 << 29, "2TiB": 2 << 40, "7B": 7, "8388607TiB": 8388607 << 40,
	} {
		s, err := ParseSize(in)
		if err != nil || int64(s) != want {
			t.Errorf("%q: got %d, %v; want %d", in, s, err, want)
			continue
		}
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Errorf("%q: %s reads back as %d, %v", in, s, back, err)
		}
	}
	for in, want := range map[string]string{
		"-1": "negative", "1KB": "write KiB", "5mb": "write MiB", "2g": "write GiB", "8388608TiB": "too large", "99999999999999999999": "too large",
		"0.3B": "whole number", "x": "not a size", "1 2": "not a size", "5q": "unknown unit", "1_000": "not a size", "": "not a size",
	} {
		if s, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %d, %v; want an error about %q", in, s, err, want)
		}
	}
}
