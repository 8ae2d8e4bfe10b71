package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

// scheduleConfig is a configuration with schedules in the zone whose midnight goes missing.
func scheduleConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "triggerd.yaml")
	err := os.WriteFile(file, []byte(`defaults: { timezone: America/Santiago }
connections:
  nightly: { cron: { schedule: "0 0 * * *", dst: { gap: skip } } }
  xmas: { cron: { at: 2100-12-24T18:00:00Z } }
  hook: { webhook: { verify: { scheme: none } } }
triggers:
  t: { connection: [nightly, xmas, hook], run: { exec: { command: ["true"] } } }
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestScheduleNext(t *testing.T) {
	t.Run("an expression needs no configuration and no daemon", func(t *testing.T) {
		expect(t, runCLI(t, nil, "schedule", "next", "--cron", "30 2 * * *", "--timezone", "America/New_York", "--from", "2027-03-12T07:30:00Z", "--count", "3"), exitOK, lines(
			"LOCAL                      UTC                   NOTE",
			"2027-03-13T02:30:00-05:00  2027-03-13T07:30:00Z  -",
			"2027-03-14T03:00:00-04:00  2027-03-14T07:00:00Z  02:30 does not exist on this day: it fires right after the gap",
			"2027-03-15T02:30:00-04:00  2027-03-15T06:30:00Z  -",
		))
	})
	t.Run("as JSON", func(t *testing.T) {
		r := runCLI(t, nil, "schedule", "next", "--cron", "*/20 30 1 1 11 *", "--seconds", "--timezone", "America/New_York", "--from", "2026-10-31T00:00:00Z", "--count", "2", "--json")
		var got []map[string]string
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitOK {
			t.Fatalf("%v: %+v", err, r)
		}
		want := map[string]string{"local": "2026-11-01T01:30:00-04:00", "utc": "2026-11-01T05:30:00Z", "note": "first occurrence of 01:30: the clock is put back"}
		if len(got) != 2 || len(got[0]) != 3 || got[0]["local"] != want["local"] || got[0]["utc"] != want["utc"] || got[0]["note"] != want["note"] {
			t.Errorf("%v, want first %v", got, want)
		}
	})
	t.Run("29 February is shown with its year", func(t *testing.T) {
		r := runCLI(t, nil, "schedule", "next", "--cron", "0 0 29 2 *", "--timezone", "UTC", "--from", "2026-12-01T00:00:00Z", "--count", "1")
		if r.code != exitOK || !strings.Contains(r.out, "2028-02-29T00:00:00Z") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the configuration's schedules", func(t *testing.T) {
		expect(t, runCLI(t, nil, "--config", scheduleConfig(t), "schedule", "next", "--from", "2027-09-03T12:00:00Z", "--count", "2"), exitOK, lines(
			"CONNECTION  LOCAL                      UTC                   NOTE",
			"nightly     2027-09-04T00:00:00-04:00  2027-09-04T04:00:00Z  -",
			"nightly     2027-09-06T00:00:00-03:00  2027-09-06T03:00:00Z  -",
			"xmas        2100-12-24T15:00:00-03:00  2100-12-24T18:00:00Z  -",
		))
	})
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"never":           {[]string{"--cron", "0 0 30 2 *", "--timezone", "UTC"}, exitFailure, "never fire"},
		"a bad field":     {[]string{"--cron", "61 * * * *", "--timezone", "UTC"}, exitFailure, "minute"},
		"a bad zone":      {[]string{"--cron", "@daily", "--timezone", "Europe/Berln"}, exitFailure, "no such time zone"},
		"no zone":         {[]string{"--cron", "@daily"}, exitUsage, "--timezone"},
		"a bad instant":   {[]string{"--cron", "@daily", "--timezone", "UTC", "--from", "today"}, exitUsage, "--from"},
		"both":            {[]string{"nightly", "--cron", "@daily", "--timezone", "UTC"}, exitUsage, "not both"},
		"zone alone":      {[]string{"--timezone", "UTC"}, exitUsage, "for --cron"},
		"count":           {[]string{"--count", "0"}, exitUsage, "--count"},
		"another source":  {[]string{"hook"}, exitFailure, "no schedule"},
		"nobody has that": {[]string{"weekly"}, exitFailure, "no schedule"},
	} {
		t.Run("refuses: "+name, func(t *testing.T) {
			r := runCLI(t, nil, append([]string{"--config", scheduleConfig(t), "schedule", "next"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
				t.Errorf("%+v, want code %d and %q", r, c.code, c.says)
			}
		})
	}
}

// The year ahead of every run has one change of each kind in this zone, which skips midnight once.
func TestSchedulePreview(t *testing.T) {
	r := runCLI(t, nil, "--config", scheduleConfig(t), "schedule", "preview", "nightly", "--json")
	var p preview
	if err := json.Unmarshal([]byte(r.out), &p); err != nil || r.code != exitOK {
		t.Fatalf("%v: %+v", err, r)
	}
	kinds := map[string]oddNight{}
	for _, n := range p.Nights {
		kinds[n.Kind] = n
	}
	if len(p.Next) != 3 || len(kinds) != 2 || len(kinds["gap"].Lost) != 1 || kinds["gap"].Lost[0] != "00:00" || len(kinds["gap"].Slots) != 0 || len(kinds["fold"].Slots) != 1 {
		t.Errorf("%+v", p)
	}
	if r := runCLI(t, nil, "--config", scheduleConfig(t), "schedule", "preview", "nightly"); r.code != exitOK ||
		!strings.Contains(r.out, "00:00 does not exist on this day, and nothing fires for it") || !strings.Contains(r.out, "the clock is put back by 1h0m0s") {
		t.Errorf("%+v", r)
	}
}

func TestScheduleBackfill(t *testing.T) {
	f := consoletest.Sample()
	expect(t, runCLI(t, f, "schedule", "backfill", "nightly", "2026-11-01T03:00:00Z", "2026-11-02T03:00:00Z", "--again"), exitOK, lines(
		"batch  batch-1",
		"LOCAL                 UTC                   EVENT                         STATE",
		"2026-11-01T03:00:00Z  2026-11-01T03:00:00Z  nightly/2026-11-01T03:00:00Z  backfilled",
		"2026-11-02T03:00:00Z  2026-11-02T03:00:00Z  nightly/2026-11-02T03:00:00Z  backfilled",
	))
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	if want := (console.BackfillRequest{Connection: "nightly", From: at, To: at.Add(24 * time.Hour), Again: true}); len(f.Backfills) != 1 || f.Backfills[0] != want {
		t.Errorf("asked for %+v", f.Backfills)
	}
	if r := runCLI(t, f, "schedule", "backfill", "nightly", "yesterday", "2026-11-02T03:00:00Z"); r.code != exitUsage || !strings.Contains(r.err, "yesterday") {
		t.Errorf("%+v", r)
	}
}
