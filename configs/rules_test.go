package configs

import (
	"strings"
	"testing"
)

func TestConnectionRules(t *testing.T) {
	runBad(t, []badCase{
		{"names", "connections:\n  1a: {push: {}}\n  a.b: {push: {}}\n  manual: {push: {}}\n  triggerd: {push: {}}\n", []string{
			`2:3: connections.1a: name "1a": use a letter, then letters, digits, '_' or '-' (found '1')`,
			`3:3: connections["a.b"]: name "a.b": use a letter, then letters, digits, '_' or '-' (found '.')`,
			"4:3: connections.manual: the name manual is reserved for a built-in connection (choose another name)",
			"5:3: connections.triggerd: the name triggerd is reserved for a built-in connection (choose another name)",
		}},
		{"exactly one source", "connections:\n  a: {}\n  b: {push: {}, cron: '@hourly'}\ndefaults: {timezone: UTC}\n", []string{
			"2:6: connections.a: needs a source (one of webhook, cron, push, files)",
			"3:7: connections.b.push: only one of cron, push can be set",
		}},
		{"schedules", `defaults: {timezone: UTC}
connections:
  a: {cron: "0 0 3 * * *"}
  b: {cron: "TZ=UTC"}
  c: {cron: "CRON_TZ=Europe/Berlin 0 3 * * *"}
  d: {cron: "0 0 30 2 *"}
  e: {cron: "61 * * * *"}
  f: {cron: "@reboot"}
  g: {cron: "@every 10ms"}
  h: {cron: "* * *"}
  i: {cron: {schedule: ""}}
  j: {cron: {timezone: UTC}}
  k: {cron: {schedule: "@daily", catch_up: all}}
  l: {cron: {schedule: "@daily", catch_up: lastest, timezone: Europe/Berln}}
  m: {cron: {schedule: "@daily", timezone: Local}}
  n: {cron: "0 0 31 4,6,9,11 *"}
`, []string{
			"3:13: connections.a.cron.schedule: six fields: set `seconds: true` if the first one is the second, else write five",
			"4:13: connections.b.cron.schedule: a zone in the schedule is not supported: set `timezone` (use the key timezone)",
			"5:13: connections.c.cron.schedule: a zone in the schedule is not supported: set `timezone` (use the key timezone)",
			`6:13: connections.d.cron.schedule: schedule "0 0 30 2 *" can never fire: no such date`,
			`7:13: connections.e.cron.schedule: minute field "61": 61 is not between 0 and 59`,
			`8:13: connections.f.cron.schedule: @reboot is not a time: use a trigger on the event daemon.started of the connection triggerd`,
			`9:13: connections.g.cron.schedule: "@every 10ms": want whole seconds, from 1s to 8784h0m0s`,
			"10:13: connections.h.cron.schedule: want five fields (minute hour day month weekday), found 3",
			"11:24: connections.i.cron.schedule: is empty (leave the key out for the default)",
			"12:13: connections.j.cron: needs a schedule or instants (one of schedule, at)",
			`14:44: connections.l.cron.catch_up: "lastest" is not one of latest, none, all (did you mean latest?)`,
			"14:63: connections.l.cron.timezone: there is no such time zone (use a name of the IANA zone database, for example Europe/Berlin)",
			"15:44: connections.m.cron.timezone: zone Local depends on the machine (use a name of the IANA zone database, for example Europe/Berlin)",
			`16:13: connections.n.cron.schedule: schedule "0 0 31 4,6,9,11 *" can never fire: no such date`,
		}},
		{"schedules with more", `defaults: {timezone: Europe/London}
connections:
  a: {cron: {schedule: "0 0 3 * * *", seconds: true, dst: {gap: skip, fold: both}, catch_up: all, catch_up_window: 7d, catch_up_limit: 5, jitter: 30s}}
  b: {cron: {at: 2026-12-24T18:00:00Z}}
  c: {cron: {at: [2026-12-24T18:00:00Z, tomorrow]}}
  d: {cron: {schedule: "@daily", at: 2026-12-24T18:00:00Z}}
  e: {cron: {schedule: "@daily", seconds: true, dst: {gap: jump}}}
  f: {cron: {schedule: "@daily", start: 2026-12-24, end: 2026-12-23}}
  g: {cron: {schedule: "@daily", end: soon}}
  h: {cron: {schedule: "@daily", exclude: [2026-12-25, "0 0 * * 0", 2026-13-25]}}
  i: {cron: {schedule: "@daily", exclude: "every sunday"}}
  j: {cron: {schedule: "@daily", exclude: "* * * * *"}}
  k: {cron: {schedule: "0 0 * * L", catch_up_limit: 0}}
  l: {cron: {at: 2026-12-24T18:00:00Z, seconds: true}}
`, []string{
			`5:41: connections.c.cron.at[1]: "tomorrow" is no instant such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00`,
			"6:34: connections.d.cron.at: only one of schedule, at can be set",
			`7:60: connections.e.cron.dst.gap: "jump" is not one of fire_after, skip`,
			"8:13: connections.f.cron: end is before start",
			`9:39: connections.g.cron.end: "soon" is no instant such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, nor a date such as 2026-12-24`,
			`10:69: connections.h.cron.exclude[2]: "2026-13-25" is no date`,
			"11:43: connections.i.cron.exclude[0]: neither a date such as 2026-12-25 nor a schedule of five fields: want five fields (minute hour day month weekday), found 2",
			"12:13: connections.j.cron: no slot is left: start, end and exclude take all of them away",
			`13:24: connections.k.cron.schedule: day of week field "L": "L" alone is Saturday in Quartz and the last day elsewhere: write SAT, or 6L for the month's last Saturday`,
			"13:53: connections.k.cron.catch_up_limit: 0 is too small: at least 1",
			"14:49: connections.l.cron.seconds: seconds is for a schedule (instants have theirs)",
		}},
		{"a schedule without a zone", "connections: {a: {cron: '@daily'}, b: {cron: {schedule: '@daily', timezone: UTC}}, c: {cron: '@every 5m'}}\n", []string{
			"1:25: connections.a.cron: schedule has no time zone (set timezone here or in defaults; timezone: UTC is one)",
		}},
		{"an unknown default zone", "defaults: {timezone: Mars/Olympus}\n", []string{
			"1:22: defaults.timezone: there is no such time zone (use a name of the IANA zone database, for example Europe/Berlin)",
		}},
		{"who may post", `secrets: {gh: {env: TOKEN}}
connections:
  a: {webhook: {}}
  b: {webhook: {verify: {}}}
  c: {webhook: {verify: {scheme: bearer}}}
  d: {webhook: {verify: {scheme: bearer, secrets: []}}}
  e: {webhook: {verify: {scheme: bearer, secrets: [gh, hg]}}}
  f: {webhook: {verify: {scheme: none, secrets: gh}}}
  g: {webhook: {verify: {scheme: github, secrets: gh}}}
  h: {webhook: {verify: {scheme: baerer, secrets: gh}}}
  i: {webhook: {verify: none}}
`, []string{
			"3:16: connections.a.webhook: needs verify",
			"4:25: connections.b.webhook.verify: needs scheme",
			"5:25: connections.c.webhook.verify: scheme bearer needs secrets (name at least one secret)",
			"6:51: connections.d.webhook.verify.secrets: list is empty (leave the key out for the default)",
			`7:56: connections.e.webhook.verify.secrets[1]: there is no secret "hg" (known: gh)`,
			"8:40: connections.f.webhook.verify.secrets: scheme none checks no secret (use scheme: bearer, or leave secrets out)",
			`9:34: connections.g.webhook.verify.scheme: "github" is not available yet in this version (use bearer, none)`,
			`10:34: connections.h.webhook.verify.scheme: "baerer" is not one of bearer, none (did you mean bearer?)`,
			"11:25: connections.i.webhook.verify: wants a mapping, this is text",
		}},
		{"webhook expressions and sizes", `connections:
  a:
    webhook:
      verify: {scheme: none}
      id: request.headers[
      type: request.bdy
      max_body: 65MiB
`, []string{
			"5:27: connections.a.webhook.id: ...",
			"6:20: connections.a.webhook.type: undefined field 'bdy'...",
			"7:17: connections.a.webhook.max_body: 65MiB is too large: at most 64MiB",
		}},
		{"files", "connections: {a: {files: {paths: ['a[', b]}}, b: {files: {settle: 1h1m}}, c: {files: {paths: x, exclude: ['{']}}}\n", []string{
			"1:35: connections.a.files.paths[0]: not a glob (brackets and braces must close; a backslash takes the next character as it is)",
			"1:58: connections.b.files: needs paths",
			"1:67: connections.b.files.settle: 1h1m is too large: at most 1h",
			"1:107: connections.c.files.exclude[0]: not a glob (brackets and braces must close; a backslash takes the next character as it is)",
		}},
		{"a taken-over name is gone, and taken over once", "connections:\n  a: {push: {}, renamed_from: b}\n  b: {push: {}, renamed_from: old}\n  c: {push: {}, renamed_from: old}\n  d: {push: {}, renamed_from: d}\n  e: {push: {}, renamed_from: 'x.y'}\n", []string{
			`2:31: connections.a.renamed_from: "b" still exists (remove it, or leave renamed_from out)`,
			`4:31: connections.c.renamed_from: "old" was taken over by "b" already`,
			"5:31: connections.d.renamed_from: is the present name (name the one before it)",
			`6:31: connections.e.renamed_from: name "x.y": use a letter, then letters, digits, '_' or '-' (found '.')`,
		}},
	})
}

func TestTriggerRules(t *testing.T) {
	runBad(t, []badCase{
		{"a trigger needs a connection or one source, and an action", "triggers:\n  a: {}\n  b: {connection: triggerd, push: {}, run: {}}\n  c: {connection: triggerd, run: {exec: {command: [x]}, publish: {subject: x}}}\n  d: {connection: triggerd, run: {exec: {}}}\n", []string{
			"2:6: triggers.a: needs run",
			"2:6: triggers.a: needs a connection or a source (one of connection, webhook, cron, push, files)",
			"3:29: triggers.b.push: only one of connection, push can be set",
			"3:44: triggers.b.run: needs an action (one of exec, http, publish)",
			"4:57: triggers.c.run.publish: only one of exec, publish can be set",
			"5:41: triggers.d.run.exec: needs command",
		}},
		{"connections that are not there", hook + "triggers:\n  a:\n    connection: [in, im, in, manual, triggered]\n" + run, []string{
			`5:22: triggers.a.connection[1]: there is no connection "im" (known: in, triggerd)`,
			`5:26: triggers.a.connection[2]: "in" is named twice`,
			"5:30: triggers.a.connection[3]: manual cannot be named (fire reaches every trigger without it)",
			`5:38: triggers.a.connection[4]: there is no connection "triggered" (did you mean triggerd?)`,
		}},
		{"an inline source must not clash", hook + "triggers:\n  in:\n    push: {}\n" + run + "  manual:\n    push: {}\n" + run + "  b.c:\n    connection: in\n" + run, []string{
			"4:3: triggers.in: the connection of its inline source would be named like connections.in at t.yaml:2 (rename the trigger, or name the connection with connection: in)",
			"7:3: triggers.manual: the name manual is reserved for a built-in connection (choose another name)",
			`10:3: triggers["b.c"]: name "b.c": use a letter, then letters, digits, '_' or '-' (found '.')`,
		}},
		{"event globs", rule + "    event: [order., '', 'a**', '**', 'a b', '*.x']\n", []string{
			"7:13: triggers.a.event[0]: event type has an empty part between dots (for example order.created, order.*, **)",
			"7:21: triggers.a.event[1]: is empty",
			"7:25: triggers.a.event[2]: ** must stand alone between dots (for example order.created, order.*, **)",
			"7:38: triggers.a.event[4]: event type holds a space (for example order.created, order.*, **)",
		}},
		{"words", rule + "    overlap: join\n    on_crash: resume\n    while_paused: holt\n", []string{
			`7:14: triggers.a.overlap: "join" is not available yet in this version (use queue, skip, allow)`,
			`8:15: triggers.a.on_crash: "resume" is not available yet in this version (it is for agents; use retry or park)`,
			`9:19: triggers.a.while_paused: "holt" is not one of hold, skip (did you mean hold?)`,
		}},
		{"overlap rules of later versions", rule + "    overlap: latest\n  b:\n    connection: in\n    overlap: cancel_previous\n" + run, []string{
			`7:14: triggers.a.overlap: "latest" is not available yet in this version (use queue, skip, allow)`,
			`10:14: triggers.b.overlap: "cancel_previous" is not available yet in this version (use queue, skip, allow)`,
		}},
		{"bounds", rule + "    concurrency: [{limit: 0}, {}]\n    timeout: 0\n    retry: {attempts: 0, backoff: {initial: 1m, max: 1s}, max_elapsed: -1s}\n    thread: {scope: s}\n", []string{
			"7:27: triggers.a.concurrency[0].limit: 0 is too small: at least 1",
			"7:31: triggers.a.concurrency[1]: needs limit",
			"8:14: triggers.a.timeout: 0s is too small: at least 1ms",
			"9:23: triggers.a.retry.attempts: 0 is too small: at least 1",
			"9:35: triggers.a.retry.backoff: max 1s is shorter than initial 1m",
			"9:72: triggers.a.retry.max_elapsed: duration is negative",
			"10:13: triggers.a.thread: scope without a key",
		}},
		{"durations have units", rule + "    timeout: 30\n    retry: {max_elapsed: 300000w, backoff: {max: 5 minutes, initial: [1]}}\n", []string{
			"7:14: triggers.a.timeout: duration has no unit, for example 30s",
			"8:26: triggers.a.retry.max_elapsed: duration is too long: the limit is 292 years",
			"8:50: triggers.a.retry.backoff.max: not a duration, for example 30s, 1h30m, 7d",
			"8:70: triggers.a.retry.backoff.initial: wants a duration, this is a list",
		}},
		{"expressions, with their places", rule + `    filter: "event.payload.a == 1 && event.paylod.b"
    thread: |
      event.payload.a +
          evnt.id
    input: text ${{ event.id }} and ${{ nope }}
`, []string{
			"7:43: triggers.a.filter: undefined field 'paylod'...",
			"10:11: triggers.a.thread.key: undeclared reference to 'evnt'...",
			"11:41: triggers.a.input: undeclared reference to 'nope'...",
		}},
		{"a filter must be a bool", rule + "    filter: event.id\n", []string{
			"7:13: triggers.a.filter: ...",
		}},
		{"secrets have no place in decisions", "secrets: {s: {env: TOKEN}}\n" + rule + "    input: ${{ secrets.s }}\n", []string{
			"8:16: triggers.a.input: ...",
		}},
	})
}

func TestActionRules(t *testing.T) {
	runBad(t, []badCase{
		{"secrets that are not there", "secrets: {github: {env: TOKEN}}\n" + hook + `triggers:
  a:
    connection: in
    run:
      exec:
        command: [x, "${{ secrets.githb }}"]
        env: {A: "${{ secrets['github'] }}", B: "x ${{ secrets.other }}"}
`, []string{
			`9:22: triggers.a.run.exec.command[1]: there is no secret "githb" (did you mean github?)`,
			`10:49: triggers.a.run.exec.env.B: there is no secret "other" (known: github)`,
		}},
		{"exec", hook + "triggers:\n  a:\n    connection: in\n    run: {exec: {command: [x], env: {TRIGGERD_X: a, 'a=b': c}, exit_codes: {retry: [0, 75, 64], dead: [64, 256]}, max_output: 1MB}}\n", []string{
			"6:38: triggers.a.run.exec.env.TRIGGERD_X: names that start with TRIGGERD_ are set by triggerd",
			"6:53: triggers.a.run.exec.env.a=b: a variable's name holds no '=', space or NUL",
			"6:85: triggers.a.run.exec.exit_codes.retry[0]: 0 is too small: at least 1",
			"6:104: triggers.a.run.exec.exit_codes.dead[0]: exit code 64 is in retry as well",
			"6:108: triggers.a.run.exec.exit_codes.dead[1]: 256 is too large: at most 255",
			"6:127: triggers.a.run.exec.max_output: unit MB is not used: write MiB (1024-based)",
		}},
		{"http", hook + `triggers:
  a: {connection: in, run: {http: {url: ftp://x/}}}
  b: {connection: in, run: {http: {url: "http://", method: "GE T", retry_status: [99, 600]}}}
  c: {connection: in, run: {http: {url: "example.com/${{ event.id }}", headers: {"a b": c}}}}
  d: {connection: in, run: {http: {url: "${{ event.payload.url }}"}}}
  e: {connection: in, run: {http: {headers: {A: b}}}}
`, []string{
			"4:41: triggers.a.run.http.url: wants a URL that starts with http:// or https://",
			"5:41: triggers.b.run.http.url: is not a URL",
			"5:60: triggers.b.run.http.method: not an HTTP method (for example POST)",
			"5:83: triggers.b.run.http.retry_status[0]: 99 is too small: at least 100",
			"5:87: triggers.b.run.http.retry_status[1]: 600 is too large: at most 599",
			"6:41: triggers.c.run.http.url: wants a URL that starts with http:// or https://",
			`6:82: triggers.c.run.http.headers["a b"]: not a header name`,
			"8:35: triggers.e.run.http: needs url",
		}},
		{"publish", hook + `triggers:
  a: {connection: in, run: {publish: {subject: "a b"}}}
  b: {connection: in, run: {publish: {subject: "a.*"}}}
  c: {connection: in, run: {publish: {subject: "a..b"}}}
  d: {connection: in, run: {publish: {subject: "$JS.API"}}}
  e: {connection: in, run: {publish: {subject: "triggerd.event.x.0.y"}}}
  f: {connection: in, run: {publish: {subject: "triggerd.push.o.${{ event.type }}"}}}
  g: {connection: in, run: {publish: {subject: "a."}}}
`, []string{
			"4:48: triggers.a.run.publish.subject: a subject holds no space",
			"5:48: triggers.b.run.publish.subject: a message is sent to one subject: no * and >",
			"6:48: triggers.c.run.publish.subject: a subject has no empty part between dots",
			"7:48: triggers.d.run.publish.subject: subjects of the server itself cannot be published to",
			"8:48: triggers.e.run.publish.subject: subjects of triggerd itself cannot be published to, except triggerd.push and triggerd.submit",
			"10:48: triggers.g.run.publish.subject: a subject has no empty part between dots",
		}},
	})
}

func TestServerAndStoreRules(t *testing.T) {
	runBad(t, []badCase{
		{"listeners", "server: {listen: '8080', admin: {listen: '127.0.0.1:9000'}, concurrency: 0}\nnats: {embedded: {listen: 'x:99999', sync: grp, max_payload: 1KB}}\n", []string{
			"1:18: server.listen: wants host:port or off (for example 127.0.0.1:8080)",
			"1:42: server.admin.listen: wants unix:<path> (an admin API on TCP is not available yet in this version)",
			"1:74: server.concurrency: 0 is too small: at least 1",
			"2:27: nats.embedded.listen: wants host:port or off (for example 127.0.0.1:8080)",
			`2:44: nats.embedded.sync: "grp" is not one of group, always, interval (did you mean group?)`,
			"2:62: nats.embedded.max_payload: unit KB is not used: write KiB (1024-based)",
		}},
		{"a socket's path has a limit", "server: {admin: {listen: 'unix:/" + strings.Repeat("x", 107) + "'}}\n", []string{
			"1:26: server.admin.listen: path of the socket has 108 bytes, the limit is 107",
		}},
		{"embedded or external", "nats: {url: nats://x, embedded: {sync: always}}\n", []string{
			"1:23: nats.embedded: cannot be set together with url (keep one: the server inside the daemon, or an external one)",
		}},
		{"what is for an external server", "nats: {creds: x, token: y, tls: {ca: z}, domain: d, replicas: 3}\n", []string{
			"1:8: nats.creds: is for an external server (set nats.url too, or leave it out)",
			"1:18: nats.token: is for an external server (set nats.url too, or leave it out)",
			"1:28: nats.tls: is for an external server (set nats.url too, or leave it out)",
			"1:42: nats.domain: is for an external server (set nats.url too, or leave it out)",
			"1:63: nats.replicas: the embedded server is a single one (replicas need an external cluster: set nats.url)",
		}},
		{"an external server", "nats:\n  url: ['http://x', 'nats://', 'nats://u:p%zz@h']\n  creds: x\n  nkey: y\n  tls: {cert: c}\n  replicas: 6\n  prefix: a.b\n", []string{
			"2:9: nats.url[0]: wants a nats:// or tls:// URL (for example nats://nats.example.com:4222)",
			"2:21: nats.url[1]: URL has no host (for example nats://nats.example.com:4222)",
			"2:32: nats.url[2]: is not a URL (for example nats://nats.example.com:4222)",
			"4:3: nats.nkey: only one of creds, nkey can be set",
			"5:8: nats.tls: cert and key belong together",
			"6:13: nats.replicas: 6 is too large: at most 5",
			`7:11: nats.prefix: name "a.b": use a letter, then letters, digits, '_' or '-' (found '.')`,
		}},
		{"a token that is a secret", "nats: {url: nats://x, token: 'a${{ secrets.s }}'}\n", []string{
			"1:30: nats.token: wants a token or one secret (for example ${{ secrets.nats }})",
			`1:30: nats.token: there is no secret "s"`,
		}},
		{"a sync interval without its mode", "nats: {embedded: {sync_interval: 1s}}\n", []string{"1:19: nats.embedded.sync_interval: counts only with sync: interval"}},
		{"turns outlive events", "history: {events: 10d, turns: 9d}\n", []string{
			"1:31: history.turns: is shorter than history.events (10d) (a turn is what keeps its event from running twice)",
		}},
		{"secrets", "secrets:\n  a: {}\n  b: {env: TOKEN, file: x}\n  c: {env: NOPE}\n  d: {env: EMPTY}\n  e-: {file: ''}\n  1: {env: TOKEN}\n", []string{
			"2:6: secrets.a: needs a place to come from (one of env, file)",
			"3:19: secrets.b.file: only one of env, file can be set",
			"4:12: secrets.c.env: variable NOPE is not set",
			"5:12: secrets.d.env: variable EMPTY is not set",
			"6:14: secrets.e-.file: is empty (leave the key out for the default)",
			`7:3: secrets.1: name "1": use a letter, then letters, digits, '_' or '-' (found '1')`,
		}},
	})
}
