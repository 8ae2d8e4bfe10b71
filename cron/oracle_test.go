package cron

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type oracleCase struct {
	Expr     string
	TZ       string
	From     time.Time
	Expected []time.Time
	Tags     []string
}

// readLines decodes a file of JSON lines; testdata/README.md says where they come from.
func readLines[T any](t *testing.T, name string, least int) []T {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []T
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s line %d: %v", name, len(all)+1, err)
		}
		all = append(all, v)
	}
	if len(all) < least {
		t.Fatalf("%s has %d cases, want at least %d", name, len(all), least)
	}
	return all
}

func TestNextAgreesWithOtherEngines(t *testing.T) {
	for name, least := range map[string]int{"cases.jsonl": 440, "disagree.jsonl": 60} {
		t.Run(name, func(t *testing.T) {
			for _, c := range readLines[oracleCase](t, name, least) {
				loc, err := time.LoadLocation(c.TZ)
				if err != nil {
					t.Fatal(err)
				}
				s, err := Parse(c.Expr, Options{Zone: loc})
				if err != nil {
					t.Errorf("Parse(%q): %v", c.Expr, err)
					continue
				}
				at := c.From
				for i, want := range c.Expected {
					if at = s.Next(at); !at.Equal(want) {
						t.Errorf("%q in %s from %s %v: slot %d is %s, want %s", c.Expr, c.TZ, c.From, c.Tags, i, at, want)
						break
					}
				}
			}
		})
	}
}

func TestParseRefusesWhatOtherEnginesRefuse(t *testing.T) {
	for _, expr := range readLines[string](t, "invalid.jsonl", 80) {
		if s, err := Parse(expr, Options{Zone: time.UTC}); err == nil {
			t.Errorf("Parse(%q) accepted it; next slot %v", expr, s.Next(time.Unix(0, 0)))
		}
	}
}
