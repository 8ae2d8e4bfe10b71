package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

func TestTurnsList(t *testing.T) {
	f := consoletest.Sample()
	ship, hello := f.TurnList[0].Hash, f.TurnList[1].Hash
	t.Run("table", func(t *testing.T) {
		expect(t, runCLI(t, consoletest.Sample(), "turns", "list", "--utc"), exitOK, lines(
			"TURN        TRIGGER  EVENT                THREAD      STATE   ATTEMPT  OPENED                FINISHED              ERROR",
			short(ship)+"  ship     orders/42            customer:7  dead    4        2026-03-01 12:00:00Z  2026-03-01 12:01:30Z  exit code 1",
			short(hello)+"  hello    hooks/a/b#1:c?d&e=é  -           queued  1        2026-03-01 11:59:59Z  -                     -",
		))
	})
	t.Run("filters and pages", func(t *testing.T) {
		for args, want := range map[string]string{
			"":                           ship + hello,
			"--trigger hello":            hello,
			"--connection orders":        ship,
			"--state queued":             hello,
			"--state done":               "",
			"--limit 1":                  ship,
			"--after " + ship:            hello,
			"--after " + short(ship):     hello,
			"--after orders:ship:42":     hello,
			"--trigger ship --limit -1 ": ship,
		} {
			r := runCLI(t, consoletest.Sample(), append([]string{"turns", "list", "--json"}, strings.Fields(args)...)...)
			var list []console.TurnInfo
			if err := json.Unmarshal([]byte(r.out), &list); err != nil {
				t.Fatalf("%s: %v (%+v)", args, err, r)
			}
			got := ""
			for _, turn := range list {
				got += turn.Hash
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", args, got, want)
			}
		}
	})
	t.Run("json has every documented key", func(t *testing.T) {
		r := runCLI(t, consoletest.Sample(), "turns", "list", "--jsonl")
		var row map[string]any
		if err := json.Unmarshal([]byte(strings.SplitN(r.out, "\n", 2)[0]), &row); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"hash", "key", "connection", "trigger", "event_id", "thread", "state", "attempt", "opened", "finished", "error", "outcome"} {
			if _, ok := row[key]; !ok {
				t.Errorf("%q is missing in %v", key, row)
			}
		}
	})
}

func TestTurnsShow(t *testing.T) {
	f := consoletest.Sample()
	t.Run("a dead turn's story", func(t *testing.T) {
		expect(t, runCLI(t, f, "turns", "show", "orders:ship:42", "--utc"), exitOK, lines(
			"turn      "+f.TurnList[0].Hash,
			"key       orders:ship:42",
			"trigger   ship",
			"thread    customer:7",
			"state     dead (attempt 4)",
			"error     exit code 1",
			"opened    2026-03-01 12:00:00Z",
			"finished  2026-03-01 12:01:30Z (after 1m30s)",
			"outcome   exit code 1, 68.4 KiB of output, cut",
			"event     orders/42, order.created, 2026-03-01 11:59:00Z, 36 B, sequence 12",
			"",
			"INPUT",
			"{",
			`  "n": 9007199254740993`,
			"}",
			"",
			"HISTORY",
			"TIME                  STATE    ATTEMPT  DAEMON  CAUSE",
			"2026-03-01 12:00:00Z  queued   -        -       -",
			"2026-03-01 12:00:01Z  running  1        host-1  -",
			"2026-03-01 12:01:30Z  dead     4        -       exit code 1",
			"",
			"OUTPUT",
			"line one",
			"line\ttwo \\x1b[2J",
		))
	})
	t.Run("a turn in backoff says when it is tried again", func(t *testing.T) {
		r := runCLI(t, f, "turns", "show", f.TurnList[1].Hash[:6], "--utc")
		if !strings.Contains(r.out, "next try  2026-03-01 12:01:00Z") || strings.Contains(r.out, "OUTPUT") || strings.Contains(r.out, "finished") {
			t.Fatal(r.out)
		}
	})
	t.Run("json is one object", func(t *testing.T) {
		r := runCLI(t, f, "turns", "show", "orders:ship:42", "--json")
		var d console.TurnDetail
		if err := json.Unmarshal([]byte(r.out), &d); err != nil || len(d.History) != 3 || d.Output != "line one\nline\ttwo \x1b[2J\n" {
			t.Fatalf("%v: %s", err, r.out)
		}
	})
}

func TestTurnsRetryAndCancel(t *testing.T) {
	t.Run("retry names the new turn and the first one", func(t *testing.T) {
		f := consoletest.Sample()
		r := runCLI(t, f, "turns", "retry", "orders:ship:42")
		expect(t, r, exitOK, "opened turn "+short(f.TurnList[0].Hash)+" (orders:ship:42#1), queued, a retry of orders:ship:42\n")
	})
	t.Run("cancel reports the end", func(t *testing.T) {
		f := consoletest.Sample()
		hash := f.TurnList[1].Hash
		expect(t, runCLI(t, f, "turns", "cancel", hash), exitOK, "turn "+short(hash)+" (hooks:hello:a/b#1:c?d&e=é) is cancelled\n")
	})
	t.Run("a conflict is a failure", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "turns", "cancel", "orders:ship:42"); r.code != exitFailure || !strings.Contains(r.err, "conflict") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("json is the turn", func(t *testing.T) {
		var turn console.TurnInfo
		r := runCLI(t, consoletest.Sample(), "turns", "retry", "orders:ship:42", "--json")
		if err := json.Unmarshal([]byte(r.out), &turn); err != nil || turn.ReplayOf != "orders:ship:42" {
			t.Fatalf("%v: %s", err, r.out)
		}
	})
	t.Run("Ctrl-C ends the wait with 130", func(t *testing.T) {
		f := consoletest.Sample()
		f.Block, f.Blocked = make(chan struct{}), make(chan struct{}, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		var out, errs bytes.Buffer
		code := make(chan int, 1)
		go func() {
			code <- execute(ctx, []string{"turns", "cancel", f.TurnList[1].Hash}, Streams{Out: &out, Err: &errs}, func() (console.Backend, error) { return f, nil })
		}()
		<-f.Blocked
		cancel(errInterrupted)
		if c := <-code; c != exitInterrupted || errs.String() != "triggerd: interrupted\n" {
			t.Fatalf("exit %d, stderr %q", c, errs.String())
		}
	})
}
