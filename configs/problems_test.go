package configs

import (
	"strings"
	"testing"
)

// A case is a document and its problems, all of them, without the file's name.
type badCase struct {
	name string
	doc  string
	want []string
}

func runBad(t *testing.T, cases []badCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(c.doc), testOptions())
			got := problemsOf(t, err)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "t.yaml:")
				// What an expression's compiler says ends in "...": its words are its own package's business.
				if start, open := strings.CutSuffix(c.want[min(i, len(c.want)-1)], "..."); open && strings.HasPrefix(got[i], start) {
					got[i] = start + "..."
				}
			}
			same(t, got, c.want)
		})
	}
}

func TestStrictYAML(t *testing.T) {
	runBad(t, []badCase{
		{"unknown keys, with what they may have meant", "conections: {}\nserver: {listne: x, frobnicate: 1}\n", []string{
			"1:1: conections: unknown key (did you mean connections?)",
			"2:10: server.listne: unknown key (did you mean listen?)",
			"2:21: server.frobnicate: unknown key (known: admin, concurrency, drain_timeout, labels, listen, metrics)",
		}},
		{"keys of later versions", "agents: {}\n" + rule + "    coalesce: {}\n", []string{
			"1:1: agents: unknown key (not available yet in this version)",
			"8:5: triggers.a.coalesce: unknown key (not available yet in this version)",
		}},
		{"a misspelt key is not missed as well", hook + "triggers:\n  a:\n    conection: in\n    run: {exec: {comand: [x]}}\n", []string{
			"5:5: triggers.a.conection: unknown key (did you mean connection?)",
			"6:18: triggers.a.run.exec.comand: unknown key (did you mean command?)",
		}},
		{"duplicate keys", "server: {concurrency: 1, concurrency: 2}\nserver: {}\n", []string{
			"1:26: server.concurrency: duplicate key, first at line 1",
			"2:1: server: duplicate key, first at line 1",
		}},
		{"wrong types", "server: [1]\nnats: {replicas: two, url: {}}\nhistory: text\nconnections: 5\ntriggers:\n  a: x\nsecrets:\n  s: {env: 5}\n", []string{
			"1:9: server: wants a mapping, this is a list",
			"2:18: nats.replicas: wants a whole number, this is text",
			"2:28: nats.url: wants a list, this is a mapping",
			"3:10: history: wants a mapping, this is text",
			"4:14: connections: wants a mapping, this is a number",
			"6:6: triggers.a: wants a mapping, this is text",
			`8:12: secrets.s.env: wants text, this is a number (quote it: "5")`,
		}},
		{"numbers are decimal and fit", "server: {concurrency: 0x10}\nnats: {replicas: 99999999999999999999999}\nhistory: {}\ntriggers: {a: {concurrency: [{limit: 007}], connection: triggerd, retry: {attempts: 1.5}, run: {exec: {command: [x]}}}}\n", []string{
			`1:23: server.concurrency: wants a whole number, this is "0x10" (write it in decimal digits)`,
			"2:18: nats.replicas: number is too large",
			`4:38: triggers.a.concurrency[0].limit: wants a whole number, this is "007" (write it in decimal digits)`,
			`4:85: triggers.a.retry.attempts: wants a whole number, this is "1.5" (write it in decimal digits)`,
		}},
		{"text must be text", rule + "    labels: {n: 1.10, b: yes, t: true, d: 2020-01-01}\n    enabled: yes\n", []string{
			`7:17: triggers.a.labels.n: wants text, this is a number (quote it: "1.10")`,
			`7:34: triggers.a.labels.t: wants text, this is true or false (quote it: "true")`,
			"8:14: triggers.a.enabled: wants true or false, this is text",
		}},
		{"tags", rule + "    filter: !event.payload.?author.?bot.orValue(false)\n    thread: !!str 5\n    retry: !x {attempts: 0}\n", []string{
			"7:13: triggers.a.filter: YAML tag !event.payload.?author.?bot.orValue(fals... is not allowed (quote it: '!event.payload.?author.?bot.orValue(false)')",
			"8:13: triggers.a.thread: YAML tag !!str is not allowed (quote it: '!!str 5')",
			"9:12: triggers.a.retry: YAML tag !x is not allowed (quote it: '!x {attempts: 0}')",
		}},
		{"null where a value is needed", rule + "    filter:\n    thread: ~\n    timeout: null\n    retry:\n    labels: {a: }\n    event: [~]\n", []string{
			"7:12: triggers.a.filter: needs a value, this is empty (give a value, or leave the key out)",
			"8:13: triggers.a.thread: needs a value, this is empty (quote it if it is text, or leave the key out)",
			"9:14: triggers.a.timeout: needs a value, this is empty (quote it if it is text, or leave the key out)",
			"10:11: triggers.a.retry: needs a value, this is empty (give a value, or leave the key out)",
			"11:17: triggers.a.labels.a: needs a value, this is empty (give a value, or leave the key out)",
			"12:13: triggers.a.event[0]: needs a value, this is empty (quote it if it is text, or leave the key out)",
		}},
		{"an empty source says how to write one", "connections: {o: {push: }}\n", []string{
			"1:25: connections.o.push: needs a value, this is empty (write push: {} for the defaults)",
		}},
		{"empty expressions and texts", hook + "triggers:\n  a:\n    connection: in\n    filter: ''\n    thread: ' '\n    event: ''\n    run: {exec: {command: ['']}, }\nserver: {listen: ''}\n", []string{
			"6:13: triggers.a.filter: expression is empty (leave the key out, or quote what YAML took for a comment or a tag)",
			"7:13: triggers.a.thread.key: expression is empty (leave the key out, or quote what YAML took for a comment or a tag)",
			"8:12: triggers.a.event[0]: is empty",
			"9:28: triggers.a.run.exec.command[0]: the program is empty",
			"10:18: server.listen: is empty (leave the key out for the default)",
		}},
		{"empty lists", hook + "triggers:\n  a:\n    connection: []\n    event: []\n    run: {exec: {command: []}}\n", []string{
			"5:17: triggers.a.connection: list is empty (leave the key out for the default)",
			"6:12: triggers.a.event: list is empty (leave the key out for the default)",
			"7:27: triggers.a.run.exec.command: list is empty (leave the key out for the default)",
		}},
		{"an unquoted schedule, and what comes after it", "triggers:\n  a:\n    cron: */5 * * * *   # often\n    run: {exec: {command: [x], kill_aftr: 1s}}\n  b:\n    cron: @daily\n    fitler: x\n" + run, []string{
			"3:11: triggers.a.cron: did not find expected alphabetic or numeric character (quote it: cron: '*/5 * * * *')",
			"4:32: triggers.a.run.exec.kill_aftr: unknown key (did you mean kill_after?)",
			"6:11: triggers.b.cron: found character that cannot start any token (quote it: cron: '@daily')",
			"7:5: triggers.b.fitler: unknown key (did you mean filter?)",
		}},
		{"an unquoted template in braces", rule + "    labels: {a: ${{ x }}}\n    overlap: skp\n", []string{
			"7:18: triggers.a.labels: did not find expected ',' or '}' (inside { } and [ ], quote a text that holds braces, brackets or commas)",
			`8:14: triggers.a.overlap: "skp" is not one of queue, skip, allow (did you mean skip?)`,
		}},
		{"braces without a dollar sign", rule + "    input: {{ event.payload }}\n", []string{
			"7:13: triggers.a.input: a key must be text (quote a text that starts with {{; expressions are ${{ ... }})",
		}},
		{"a line that is no entry", "server:\n  listen x\n  concurrency: 1\n", []string{"3:14: mapping values are not allowed in this context (quote it: concurrency: '1'; or check the indentation)"}},
		{"a text with a colon", rule + "    labels:\n      a: b: c\n      d: 5\n", []string{
			"8:11: triggers.a.labels.a: mapping values are not allowed in this context (quote it: a: 'b: c'; or check the indentation)",
			`9:10: triggers.a.labels.d: wants text, this is a number (quote it: "5")`,
		}},
		{"tabs", "server:\n\tlisten: x\n", []string{"2:1: tab in the indentation (indent with spaces)"}},
		{"several documents", "server: {}\n---\nserver: {}\n", []string{"2:1: several documents in one file (put them into files of their own, and name the files or their folder)"}},
		{"invalid UTF-8", "server: {}\n# \xff\n", []string{"2:3: invalid leading UTF-8 octet (value: 255) (a configuration is text in UTF-8)"}},
		{"NUL", "server: {}\na: \x00\n", []string{"2:4: control characters are not allowed (value: 0) (a configuration is text in UTF-8)"}},
		{"not a mapping", "- a\n", []string{"1:1: a configuration is a mapping, this is a list"}},
		{"a file that is a word", "triggers\n", []string{"1:1: a configuration is a mapping, this is text"}},
		{"an unknown anchor", rule + "    labels: *nope\n", []string{"7:13: triggers.a.labels: unknown anchor 'nope' referenced (quote it: labels: '*nope')"}},
		{"an anchor in itself", "server: &a {admin: *a}\n", []string{"1:20: server.admin: alias *a contains itself"}},
		{"keys that are no text", "? [a]\n: 1\n~: 2\n", []string{"1:3: a key must be text", "3:1: a key must be text"}},
		{"a merge of something else", "server: {<<: 5}\n", []string{"1:14: server: << wants a mapping or a list of mappings, this is a number"}},
		{"lists with names", "connections:\n  - {name: a, push: {}}\n  - {id: a, push: {}}\n  - {push: {}}\n  - x\n  - {name: 5, push: {}}\n  - {name: b, id: c, push: {}}\n", []string{
			"3:10: connections.a: duplicate name, first at line 2",
			"4:5: connections[2]: an entry of this list needs a name",
			"5:5: connections[3]: an entry of this list is a mapping with a name, this is text",
			"6:12: connections[4].name: a name is text, this is a number",
			"7:19: connections[5]: name and id are the same key; give one",
		}},
	})
}

func TestHostileYAML(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 10) + "]\n"
	}
	cases := map[string]string{
		"aliases of aliases":     bomb + "server: *i\n",
		"deep flow nesting":      "server: " + strings.Repeat("[", 100_000),
		"deep but well-formed":   "server: " + strings.Repeat("{admin: ", 500) + strings.Repeat("}", 500),
		"deep block nesting":     strings.Repeat("- ", 5000) + "x\n",
		"a file over the limit":  "#" + strings.Repeat("x", maxFile) + "\n",
		"a thousand bad lines":   strings.Repeat("a: *x\n", 1000),
		"an anchor through keys": "&a *a : 1\n",
	}
	for name, doc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("t.yaml", []byte(doc), testOptions()); len(problemsOf(t, err)) == 0 {
				t.Error("no problem was found")
			}
		})
	}
}

func TestAnchors(t *testing.T) {
	c := mustParse(t, `
x-run: &run
  exec: {command: [cat], env: &env {A: "1"}}
x-retry: &retry {attempts: 2, max_elapsed: 1h}
connections: {in: {push: {}}}
triggers:
  a: {connection: in, run: *run, retry: *retry}
  b:
    connection: in
    retry: {<<: *retry, attempts: 7}
    run: {exec: {command: [x], env: {<<: [*env, {B: "2", A: "3"}]}}}
`)
	a, b := c.Triggers["a"], c.Triggers["b"]
	if a.Retry.Attempts != 2 || b.Retry.Attempts != 7 || b.Retry.MaxElapsed.String() != "1h" {
		t.Errorf("retries are %+v and %+v", a.Retry, b.Retry)
	}
	if env := b.Run.Exec.Env; env["A"] != "1" || env["B"] != "2" {
		t.Errorf("env is %v: the mapping's own keys come first, then the merges in order", env)
	}
	a.Run.Exec.Env["A"] = "changed"
	if b.Run.Exec.Env["A"] != "1" {
		t.Error("two uses of an anchor share memory")
	}
}

func TestListsWithNames(t *testing.T) {
	c := mustParse(t, "secrets:\n- {id: s, env: TOKEN}\nconnections:\n- name: in\n  push: {}\ntriggers:\n- id: a\n  connection: in\n  run: {publish: {subject: x}}\n")
	if c.Triggers["a"].Connection[0] != "in" || c.Connections["in"].Push == nil || c.Secrets["s"].Env != "TOKEN" {
		t.Errorf("got %+v", c)
	}
}
