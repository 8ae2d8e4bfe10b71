package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

func TestEventsList(t *testing.T) {
	t.Run("table", func(t *testing.T) {
		expect(t, runCLI(t, consoletest.Sample(), "events", "list", "--utc"), exitOK, lines(
			"SEQ  CONNECTION  ID             TYPE              RECEIVED              SIZE",
			"13   hooks       a/b#1:c?d&e=é  webhook.received  2026-03-01 12:00:00Z  36 B",
			"12   orders      42             order.created     2026-03-01 11:59:00Z  36 B",
			"11   orders      41             order.deleted     2026-03-01 11:00:00Z  36 B",
		))
	})
	t.Run("an empty table keeps its header", func(t *testing.T) {
		expect(t, runCLI(t, &consoletest.Fake{}, "events", "list"), exitOK, lines("SEQ  CONNECTION  ID  TYPE  RECEIVED  SIZE"))
	})
	t.Run("filters and pages", func(t *testing.T) {
		for args, want := range map[string]string{
			"--connection orders":           "12 11",
			"--type order.deleted":          "11",
			"--limit 2":                     "13 12",
			"--limit 1 --after 13":          "12",
			"--limit -1":                    "13 12 11",
			"--connection orders --after 0": "12 11",
		} {
			r := runCLI(t, consoletest.Sample(), append([]string{"events", "list", "--jsonl"}, strings.Fields(args)...)...)
			if got := seqs(t, r); got != want {
				t.Errorf("%s: got %s, want %s", args, got, want)
			}
		}
	})
	t.Run("all events come page by page, each once", func(t *testing.T) {
		f := &consoletest.Fake{}
		for seq := 2*eventPage + 1; seq > 0; seq-- {
			f.EventList = append(f.EventList, console.EventDetail{EventInfo: console.EventInfo{Seq: uint64(seq)}})
		}
		r := runCLI(t, f, "events", "list", "--jsonl", "--limit", "-1")
		if n := strings.Count(r.out, "\n"); n != 2*eventPage+1 || !strings.HasSuffix(seqs(t, r), " 3 2 1") {
			t.Fatalf("%d lines", n)
		}
	})
	t.Run("json is an array of the documented shape", func(t *testing.T) {
		r := runCLI(t, consoletest.Sample(), "events", "list", "--json", "--limit", "1", "--connection", "orders")
		expect(t, r, exitOK, lines(
			`[`,
			`  {`,
			`    "seq": 12,`,
			`    "connection": "orders",`,
			`    "id": "42",`,
			`    "type": "order.created",`,
			`    "time": "2026-03-01T11:59:00Z",`,
			`    "received": "2026-03-01T11:59:00.005Z",`,
			`    "bytes": 36`,
			`  }`,
			`]`,
		))
		expect(t, runCLI(t, &consoletest.Fake{}, "events", "list", "--json"), exitOK, "[]\n")
		expect(t, runCLI(t, &consoletest.Fake{}, "events", "list", "--jsonl"), exitOK, "")
	})
}

func seqs(t *testing.T, r result) string {
	t.Helper()
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(r.out), "\n") {
		var e console.EventInfo
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %q: %v (%+v)", line, err, r.err)
		}
		out = append(out, fmt.Sprint(e.Seq))
	}
	return strings.Join(out, " ")
}

func TestEventsShow(t *testing.T) {
	t.Run("a JSON payload keeps its digits", func(t *testing.T) {
		expect(t, runCLI(t, consoletest.Sample(), "events", "show", "orders/42", "--utc"), exitOK, lines(
			"event         orders/42",
			"sequence      12",
			"type          order.created",
			"time          2026-03-01 11:59:00Z",
			"received      2026-03-01 11:59:00Z",
			"content type  application/json",
			"size          36 B",
			"",
			"PAYLOAD",
			"{",
			`  "n": 9007199254740993,`,
			`  "html": "<b>&"`,
			"}",
			"",
			"TURNS",
			"TURN        TRIGGER  EVENT      THREAD      STATE  ATTEMPT  OPENED                FINISHED              ERROR",
			short(consoletest.Sample().TurnList[0].Hash)+"  ship     orders/42  customer:7  dead   4        2026-03-01 12:00:00Z  2026-03-01 12:01:30Z  exit code 1",
		))
	})
	t.Run("text cannot steer the terminal", func(t *testing.T) {
		r := runCLI(t, consoletest.Sample(), "events", "show", "hooks/a/b#1:c?d&e=é", "--utc")
		if strings.Contains(r.out, "\x1b") || !strings.Contains(r.out, `plain <text> & \x1b[31mmore`) || !strings.Contains(r.out, "x-request-id  7") || !strings.Contains(r.out, `cursor        "c-17"`) {
			t.Fatal(r.out)
		}
		if !strings.Contains(r.out, "none (`triggerd explain 13` says why)") {
			t.Fatal(r.out)
		}
	})
	t.Run("bytes are dumped", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "events", "show", "11"); !strings.Contains(r.out, "00000000  00 ff 01") {
			t.Fatal(r.out)
		}
	})
	t.Run("json is the whole event", func(t *testing.T) {
		r := runCLI(t, consoletest.Sample(), "events", "show", "12", "--json")
		var e console.EventDetail
		if err := json.Unmarshal([]byte(r.out), &e); err != nil || e.Seq != 12 || len(e.Turns) != 1 || !strings.Contains(r.out, "9007199254740993") || !strings.Contains(r.out, "<b>&") {
			t.Fatalf("%v: %s", err, r.out)
		}
	})
	t.Run("not found", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "events", "show", "nope"); r.code != exitFailure || !strings.Contains(r.err, "not found") {
			t.Fatalf("%+v", r)
		}
	})
}

func TestExplain(t *testing.T) {
	t.Run("table with whole reasons", func(t *testing.T) {
		f := consoletest.Sample()
		ex := f.Explanations["12"]
		ex.Verdicts[1].Reason = strings.Repeat("long ", 20) + "end"
		expect(t, runCLI(t, f, "explain", "12", "--utc"), exitOK, lines(
			"event 12, orders/42, order.created, 2026-03-01 11:59:00Z, decided under configuration v7",
			"",
			"TRIGGER  VERDICT   TURN        STATE  REASON",
			"ship     matched   "+short(f.TurnList[0].Hash)+"  dead   type order.created fits order.*",
			"hello    filtered  -           -      "+ex.Verdicts[1].Reason,
		))
	})
	t.Run("no trigger", func(t *testing.T) {
		f := consoletest.Sample()
		f.Explanations = nil
		if r := runCLI(t, f, "explain", "12"); r.code != exitOK || !strings.Contains(r.out, "no trigger listens") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("json", func(t *testing.T) {
		var ex console.Explanation
		r := runCLI(t, consoletest.Sample(), "explain", "orders/42", "--json")
		if err := json.Unmarshal([]byte(r.out), &ex); err != nil || len(ex.Verdicts) != 2 || ex.Verdicts[0].Turn == nil || ex.Version != "v7" {
			t.Fatalf("%v: %s", err, r.out)
		}
	})
}
