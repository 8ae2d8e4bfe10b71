package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

func TestTriggersList(t *testing.T) {
	expect(t, runCLI(t, consoletest.Sample(), "triggers", "list", "--utc"), exitOK, lines(
		"TRIGGER  CONNECTIONS   EVENTS   ACTION   OVERLAP  QUEUED  RUNNING  HELD  DEAD  STATE",
		"ship     orders        order.*  exec     queue    2       1        0     1     active",
		"hello    hooks,orders  all      http     allow    0       0        3     0     paused until 2026-03-01 13:00:00Z (maintenance)",
		"old      orders        all      publish  skip     0       0        0     0     disabled",
	))
	var list []console.TriggerInfo
	r := runCLI(t, consoletest.Sample(), "triggers", "list", "--json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 3 || list[1].PauseNote != "maintenance" {
		t.Fatalf("%v: %s", err, r.out)
	}
}

func TestTriggersPauseAndResume(t *testing.T) {
	t.Run("pause", func(t *testing.T) {
		f := consoletest.Sample()
		r := runCLI(t, f, "triggers", "pause", "ship", "--until", "2999-01-02 03:04", "--note", "move", "--utc")
		expect(t, r, exitOK, "trigger ship is paused until 2999-01-02 03:04:00Z (move); queued 2, running 1, held 0\n")
		if got := f.TriggerList[0].PausedUntil; got == nil || !got.Equal(time.Date(2999, 1, 2, 3, 4, 0, 0, time.UTC)) {
			t.Fatalf("the backend got %v", got)
		}
	})
	t.Run("pause without an end", func(t *testing.T) {
		expect(t, runCLI(t, consoletest.Sample(), "triggers", "pause", "ship"), exitOK, "trigger ship is paused; queued 2, running 1, held 0\n")
	})
	t.Run("resume", func(t *testing.T) {
		expect(t, runCLI(t, consoletest.Sample(), "triggers", "resume", "hello"), exitOK, "trigger hello is active; queued 0, running 0, held 3\n")
	})
	t.Run("unknown trigger", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "triggers", "pause", "nope"); r.code != exitFailure || !strings.Contains(r.err, `"nope"`) {
			t.Fatalf("%+v", r)
		}
	})
}

func TestParseUntil(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	c := &cli{utc: true, now: func() time.Time { return now }}
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 3, day, hour, minute, 0, 0, time.UTC) }
	cases := []struct {
		in   string
		want time.Time // zero = refused
	}{
		{"90m", at(1, 13, 30)},
		{"2d", at(3, 12, 0)},
		{"2026-03-01 18:30", at(1, 18, 30)},
		{"2026-03-01T18:30", at(1, 18, 30)},
		{"2026-03-02", at(2, 0, 0)},
		{"2026-03-01T20:30:00+02:00", at(1, 18, 30)},
		{"2026-03-01 12:00", time.Time{}},
		{"0", time.Time{}},
		{"-1h", time.Time{}},
		{"18:30", time.Time{}},
		{"", time.Time{}},
	}
	for _, tc := range cases {
		got, err := c.parseUntil(tc.in)
		if tc.want.IsZero() != (err != nil) || err == nil && !got.Equal(tc.want) {
			t.Errorf("%q: got %v, %v, want %v", tc.in, got, err, tc.want)
		}
	}
	t.Run("without --utc it is the local zone", func(t *testing.T) {
		c := &cli{now: c.now}
		got, err := c.parseUntil("2026-03-05 18:30")
		if want := time.Date(2026, 3, 5, 18, 30, 0, 0, time.Local); err != nil || !got.Equal(want) {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	})
}

func TestApps(t *testing.T) {
	expect(t, runCLI(t, consoletest.Sample(), "apps", "list"), exitOK, lines(
		"CONNECTION  ENABLED  USER        PUBLISHES TO            URL                    CREDENTIALS",
		"orders      yes      app-orders  triggerd.push.orders.>  nats://127.0.0.1:4222  /data/apps/orders.json",
	))
	expect(t, runCLI(t, consoletest.Sample(), "apps", "add", "orders"), exitOK, lines(
		"connection    orders",
		"enabled       yes",
		"user          app-orders",
		"publishes to  triggerd.push.orders.>",
		"url           nats://127.0.0.1:4222",
		"credentials   /data/apps/orders.json",
	))
	if r := runCLI(t, consoletest.Sample(), "apps", "remove", "orders", "--json"); r.code != exitOK || !strings.Contains(r.out, `"enabled": false`) {
		t.Fatalf("%+v", r)
	}
	if r := runCLI(t, consoletest.Sample(), "apps", "remove", "nope"); r.code != exitFailure || !strings.Contains(r.err, "not found") {
		t.Fatalf("%+v", r)
	}
}

func TestReload(t *testing.T) {
	expect(t, runCLI(t, consoletest.Sample(), "reload"), exitOK, lines(
		"reloaded, configuration v8",
		"connections  +new ~orders",
		"triggers     -old",
	))
	f := consoletest.Sample()
	f.ReloadResult = console.ReloadResult{Version: "v8"}
	expect(t, runCLI(t, f, "reload"), exitOK, "nothing changed, configuration v8\n")
}
