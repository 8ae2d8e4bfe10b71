package configs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPoolNames(t *testing.T) {
	for _, c := range []struct {
		pool   string
		labels map[string]string
	}{
		{"default", nil},
		{"default", map[string]string{}},
		{"gpu=yes", map[string]string{"gpu": "yes"}},
		{"a=1/b=2/b-a=3", map[string]string{"b-a": "3", "b": "2", "a": "1"}},
	} {
		if got := Pool(c.labels); got != c.pool {
			t.Errorf("%v: got %q, want %q", c.labels, got, c.pool)
		}
		if got, ok := PoolLabels(c.pool); !ok || !maps.Equal(got, c.labels) {
			t.Errorf("%q: got %v, %v", c.pool, got, ok)
		}
	}
	long := strings.Repeat("x", 64)
	for _, pool := range []string{
		"", "gpu", "=", "a=", "=a", "a=1/", "/a=1", "b=1/a=2", "a=1/a=1", "a=1/a=2", "a=1=2", "a=1//b=2", "a.b=1", "a=*", "a=>", "a=1 ", "a=1\n", "-a=1", "a=_1",
		"ä=1", long + "=1", "a=" + long, "a=1/b=1/c=1/d=1/e=1/f=1/g=1/h=1/i=1", "default/a=1",
	} {
		if got, ok := PoolLabels(pool); ok {
			t.Errorf("%q: got %v", pool, got)
		}
	}
}

// A pool's name says its labels, no two sets have the same one, and it is one token of a subject and a part of a key.
func TestPoolNamesAreOneToOne(t *testing.T) {
	word := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,62}`)
	rapid.Check(t, func(rt *rapid.T) {
		labels := rapid.MapOfN(word, word, 0, maxLabels).Draw(rt, "labels")
		pool := Pool(labels)
		if got, ok := PoolLabels(pool); !ok || !maps.Equal(got, labels) {
			rt.Fatalf("%q: got %v, %v", pool, got, ok)
		}
		if strings.ContainsAny(pool, ".*> \t\r\n") || pool == "" || len(pool) > 1023 {
			rt.Fatalf("%q is not a token", pool)
		}
	})
}

func FuzzPoolLabels(f *testing.F) {
	for _, s := range []string{"default", "a=1", "a=1/b=2", "b=1/a=1", "=", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pool string) {
		if labels, ok := PoolLabels(pool); ok && Pool(labels) != pool {
			t.Errorf("%q: %v", pool, labels)
		}
	})
}

func TestInPool(t *testing.T) {
	has := map[string]string{"host": "a", "gpu": "yes"}
	for pool, want := range map[string]bool{
		"default": true, "host=a": true, "gpu=yes/host=a": true, "host=b": false, "gpu=yes/host=b": false, "disk=ssd": false, "": false, "host=a/": false,
	} {
		if got := InPool(has, pool); got != want {
			t.Errorf("%q: got %v", pool, got)
		}
	}
	if !InPool(nil, DefaultPool) || InPool(nil, "host=a") {
		t.Error("a daemon without labels runs what any may run, and nothing else")
	}
}

const external = "nats: {url: nats://x}\n"

func TestEffectivePools(t *testing.T) {
	c := mustParse(t, external+`
connections:
  here: {push: {}, runs_on: {host: a, "1": "2"}}
  too: {push: {}, runs_on: {"1": "2", host: a}}
  there: {push: {}, runs_on: {host: b}}
  any: {push: {}, runs_on: {}}
triggers:
  inherits: {connection: here, run: {exec: {command: [x]}}}
  both: {connection: [here, too], run: {exec: {command: [x]}}}
  own: {connection: [here, there, any, triggerd], runs_on: {gpu: yes}, run: {exec: {command: [x]}}}
  free: {connection: [here, there], runs_on: {}, run: {exec: {command: [x]}}}
  inline: {push: {}, runs_on: {gpu: yes}, run: {exec: {command: [x]}}}
  follows: {connection: inline, run: {exec: {command: [x]}}}
  plain: {connection: [any, triggerd], run: {exec: {command: [x]}}}
`)
	for name, want := range map[string]string{
		"inherits": "1=2/host=a", "both": "1=2/host=a", "own": "gpu=yes", "free": "default", "inline": "gpu=yes", "follows": "gpu=yes", "plain": "default", "nobody": "default",
	} {
		if got := c.TriggerPool(name); got != want {
			t.Errorf("trigger %s: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"here": "1=2/host=a", "there": "host=b", "any": "default", "inline": "gpu=yes", ConnectionManual: "default", ConnectionTriggerd: "default", "nobody": "default",
	} {
		if got := c.ConnectionPool(name); got != want {
			t.Errorf("connection %s: got %q, want %q", name, got, want)
		}
	}
}

// An inherited pool is a copy: a caller that changes one trigger's must not move another.
func TestInheritedPoolsAreCopies(t *testing.T) {
	c := mustParse(t, external+"connections: {a: {push: {}, runs_on: {host: a}}}\ntriggers:\n  t:\n    connection: a\n"+run)
	c.Triggers["t"].RunsOn["host"] = "b"
	if got := c.ConnectionPool("a"); got != "host=a" {
		t.Errorf("got %q", got)
	}
}

func TestLabelRules(t *testing.T) {
	tooLong := strings.Repeat("x", 64)
	hint := " (use letters, digits, '_' and '-', first a letter or digit, at most 63)"
	runBad(t, []badCase{
		{"names and values", "server: {labels: {host: '${HOST}', a.b: x, -c: x, '': x, d: '', e: 1, f: a/b, g: _x}}\n", []string{
			"1:25: server.labels.host: \"${HOST}\" is not a label's value" + hint, // the variable's text is not shown
			`1:36: server.labels["a.b"]: not a label's name` + hint,
			"1:44: server.labels.-c: not a label's name" + hint,
			`1:51: server.labels[""]: not a label's name` + hint,
			`1:61: server.labels.d: "" is not a label's value` + hint,
			`1:68: server.labels.e: wants text, this is a number (quote it: "1")`,
			`1:74: server.labels.f: "a/b" is not a label's value` + hint,
			`1:82: server.labels.g: "_x" is not a label's value` + hint,
		}},
		{"lengths", external + "server: {labels: {" + tooLong + ": x}}\nconnections: {a: {push: {}, runs_on: {host: " + tooLong + "}}}\n", []string{
			"2:19: server.labels." + tooLong + ": not a label's name" + hint,
			"3:45: connections.a.runs_on.host: \"" + tooLong[:60] + "...\" is not a label's value" + hint,
		}},
		{"how many", external + rule + "    runs_on: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}\n", []string{
			"8:14: triggers.a.runs_on: 9 labels, the limit is 8",
		}},
		{"shapes", external + "connections: {b: {push: {}, runs_on: [gpu]}, c: {push: {}, runs_on: gpu}, d: {push: {}, runs_on: }}\n", []string{
			"2:38: connections.b.runs_on: wants a mapping, this is a list",
			"2:69: connections.c.runs_on: wants a mapping, this is text",
			"2:98: connections.d.runs_on: needs a value, this is empty (give a value, or leave the key out)",
		}},
	})
	full := map[string]string{}
	for _, name := range strings.Split("a b c d e f g h", " ") {
		full[name] = tooLong[1:]
	}
	doc := external + rule + "    runs_on: {"
	for _, name := range slices.Sorted(maps.Keys(full)) {
		doc += name + ": " + full[name] + ", "
	}
	if got := mustParse(t, doc+"}\n").Triggers["a"].RunsOn; !maps.Equal(got, full) {
		t.Errorf("the largest set of labels: got %v", got)
	}
}

func TestPoolRules(t *testing.T) {
	const noDaemon = "no daemon would ever run it: with the embedded NATS there is only this one, and its server.labels do not have this"
	conns := external + "connections:\n  x: {push: {}, runs_on: {host: a}}\n  y: {push: {}, runs_on: {host: '${FIVE}'}}\n  z: {push: {}}\ntriggers:\n"
	runBad(t, []badCase{
		{"connections that run in different places", conns + `  a: {connection: [x, y], run: {exec: {command: [c]}}}
  b: {connection: [z, x, y], run: {exec: {command: [c]}}}
  c: {connection: [x, triggerd], run: {exec: {command: [c]}}}
`, []string{
			"7:23: triggers.a.connection[1]: y runs on host=${FIVE}, x on host=a (give the trigger a runs_on of its own; {} is any daemon)",
			"8:23: triggers.b.connection[1]: x runs on host=a, z on any daemon (give the trigger a runs_on of its own; {} is any daemon)",
			"9:23: triggers.c.connection[1]: triggerd runs on any daemon, x on host=a (give the trigger a runs_on of its own; {} is any daemon)",
		}},
		{"triggers that share threads", conns + `  a: {connection: x, thread: {key: event.id, scope: s}, run: {exec: {command: [c]}}}
  b: {connection: x, runs_on: {host: b, gpu: g}, thread: {key: event.id, scope: s}, run: {exec: {command: [c]}}}
  c: {connection: z, thread: {key: event.id, scope: s}, run: {exec: {command: [c]}}}
  d: {connection: z, runs_on: {host: a}, thread: {key: event.id, scope: s}, run: {exec: {command: [c]}}}
  e: {connection: z, thread: {key: event.id, scope: other}, run: {exec: {command: [c]}}}
  f: {connection: z, thread: event.id, run: {exec: {command: [c]}}}
  g: {connection: z, thread: {key: none, scope: s}, run: {exec: {command: [c]}}}
  h: {connection: x, thread: event.id, run: {exec: {command: [c]}}}
`, []string{
			"8:31: triggers.b.runs_on: runs on gpu=g, host=b, but shares its threads with triggers.a, which runs on host=a (one thread is run by one daemon: give both the same runs_on)",
			"9:53: triggers.c.thread.scope: runs on any daemon, but shares its threads with triggers.a, which runs on host=a (one thread is run by one daemon: give both the same runs_on)",
		}},
		{"the embedded server has one daemon", `server: {labels: {host: a}}
connections:
  x: {push: {}, runs_on: {host: a}}
  y: {push: {}, runs_on: {host: b, gpu: yes}}
triggers:
  a: {connection: y, run: {exec: {command: [c]}}}
  b: {connection: x, runs_on: {disk: '${FIVE}'}, run: {exec: {command: [c]}}}
  c: {push: {}, runs_on: {host: c}, run: {exec: {command: [c]}}}
`, []string{
			"4:33: connections.y.runs_on.host: " + noDaemon + " (set server.labels.host to the same)",
			"4:41: connections.y.runs_on.gpu: " + noDaemon + " (set server.labels.gpu to the same)",
			"7:38: triggers.b.runs_on.disk: " + noDaemon + " (set server.labels.disk to the same)",
			"8:33: triggers.c.runs_on.host: " + noDaemon + " (set server.labels.host to the same)",
		}},
		{"what is wrong already is said once", `server: {labels: {host: 1}}
connections:
  x: {push: {}, runs_on: {host: b}}
  y: {push: {}, runs_on: {host: 'a b'}}
triggers:
  a: {connection: [x, y], run: {exec: {command: [c]}}}
  b: {connection: [x, nobody], run: {exec: {command: [c]}}}
`, []string{
			`1:25: server.labels.host: wants text, this is a number (quote it: "1")`,
			"4:33: connections.y.runs_on.host: \"a b\" is not a label's value (use letters, digits, '_' and '-', first a letter or digit, at most 63)",
			`7:23: triggers.b.connection[1]: there is no connection "nobody" (known: triggerd, x, y)`,
		}},
		{"the listener for Prometheus", "server: {listen: '0.0.0.0:80', metrics: {listen: '0.0.0.0:80'}}\n", []string{
			"1:50: server.metrics.listen: is the address of server.listen (for example 127.0.0.1:9464)",
		}},
		{"an address for Prometheus", "server: {metrics: {listen: '9464'}}\n", []string{
			"1:28: server.metrics.listen: wants host:port or off (for example 127.0.0.1:8080)",
		}},
	})
}

// Files are checked where their environment is not: a label that is not known is no problem, and makes none elsewhere.
func TestUnknownLabelsAreNoProblem(t *testing.T) {
	doc := `server: {labels: {host: '${NODE}'}}
connections:
  x: {push: {}, runs_on: {host: a}}
  y: {push: {}, runs_on: {host: '${NODE}'}}
triggers:
  a: {connection: [x, y], run: {exec: {command: [c]}}}
`
	if _, err := Parse("t.yaml", []byte(doc), Options{Env: env(), AllowUnset: true}); err != nil {
		t.Error(err)
	}
	if _, err := Parse("t.yaml", []byte(doc), Options{Env: env("NODE", "a")}); err != nil {
		t.Error(err)
	}
}

func TestMetricsListener(t *testing.T) {
	if got := mustParse(t, "").Server.Metrics.Listen; got != "off" {
		t.Errorf("by default: %q", got)
	}
	if got := mustParse(t, "server: {listen: 'off', metrics: {listen: 'off'}}\n").Server.Metrics.Listen; got != "off" {
		t.Errorf("both off: %q", got)
	}
	if got := mustParse(t, "server: {metrics: {listen: '127.0.0.1:9464'}}\n").Server.Metrics.Listen; got != "127.0.0.1:9464" {
		t.Errorf("got %q", got)
	}
}
