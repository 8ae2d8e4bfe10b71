package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

func TestFire(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("data comes from where the flag says", func(t *testing.T) {
		for flag, want := range map[string]string{"text": "text", "": "", "@" + file: "from a file\n", "-": "from \x00 stdin"} {
			f := consoletest.Sample()
			r := runWith(t, "from \x00 stdin", func() (console.Backend, error) { return f, nil }, "fire", "ship", "--data", flag)
			if r.code != exitOK || len(f.Fired) != 1 || string(f.Fired[0].Data) != want || f.Fired[0].Trigger != "ship" {
				t.Errorf("--data %q: %+v, the backend got %+v", flag, r, f.Fired)
			}
		}
	})
	t.Run("says the turn and what applies", func(t *testing.T) {
		hash := triggerd.TurnKey{Connection: "manual", Trigger: "hello", EventID: "x"}.Hash()
		expect(t, runCLI(t, consoletest.Sample(), "fire", "hello", "--id", "x", "--utc"), exitOK, lines(
			"fired hello",
			"event    manual/x",
			"turn     "+hash,
			"key      manual:hello:x",
			"applies  overlap allow, trigger paused until 2026-03-01 13:00:00Z (maintenance); queued 0, running 0, held 3",
		))
	})
	t.Run("the same id again is told apart", func(t *testing.T) {
		f := consoletest.Sample()
		runCLI(t, f, "fire", "ship", "--id", "x")
		if r := runCLI(t, f, "fire", "ship", "--id", "x"); r.code != exitOK || !strings.HasPrefix(r.out, "fired before, nothing new runs: ship\n") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("an event instead of data", func(t *testing.T) {
		f := consoletest.Sample()
		r := runCLI(t, f, "fire", "ship", "--event", "orders/42", "--json")
		var res console.FireResult
		if err := json.Unmarshal([]byte(r.out), &res); err != nil || f.Fired[0].Event != "orders/42" || len(f.Fired[0].Data) > 0 {
			t.Fatalf("%v: %+v, the backend got %+v", err, r, f.Fired)
		}
	})
	t.Run("a fired event stays a success when the comfort fails", func(t *testing.T) {
		r := runCLI(t, noTriggers{consoletest.Sample()}, "fire", "ship")
		if r.code != exitOK || strings.Contains(r.out, "applies") || !strings.Contains(r.out, "event  manual/") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("a file that is missing", func(t *testing.T) {
		f := consoletest.Sample()
		if r := runCLI(t, f, "fire", "ship", "--data", "@"+file+".no"); r.code != exitFailure || !strings.Contains(r.err, "read --data") || len(f.Fired) > 0 {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("data over the limit", func(t *testing.T) {
		f := consoletest.Sample()
		if err := os.Truncate(file, console.MaxFireData+1); err != nil {
			t.Fatal(err)
		}
		if r := runCLI(t, f, "fire", "ship", "--data", "@"+file); r.code != exitFailure || !strings.Contains(r.err, "more than 64.0 MiB") || len(f.Fired) > 0 {
			t.Fatalf("%+v", r)
		}
	})
}

// noTriggers fires, and then cannot list.
type noTriggers struct{ console.Backend }

func (noTriggers) Triggers(context.Context) ([]console.TriggerInfo, error) {
	return nil, errors.New("gone")
}
