package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

const goodCrontab = "MAILTO=ann\n# Every night\n0 3 * * * /bin/backup.sh \"${HOME}\" ${{ x }}\n@reboot /bin/warm\n"

func TestImportCrontab(t *testing.T) {
	t.Run("what it prints is valid, and what to look at is told apart", func(t *testing.T) {
		workIn(t, map[string]string{"tab": goodCrontab})
		r := runWith(t, "", nil, "import", "crontab", "--timezone", "Europe/Berlin", "tab")
		if r.code != exitOK || !strings.Contains(r.out, "\n  # Every night\n") || !strings.Contains(r.out, "timezone: Europe/Berlin, catch_up: none }") {
			t.Fatalf("%+v", r)
		}
		if lines := strings.Split(r.err, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "tab:1: warning: MAILTO") || !strings.HasPrefix(lines[1], "tab:4: warning: @reboot") {
			t.Fatalf("stderr %q", r.err)
		}
		if err := os.WriteFile("triggerd.yaml", []byte(r.out), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, runWith(t, "", nil, "validate"), exitOK, "ok: 1 connection, 2 triggers\n")
		again := runWith(t, goodCrontab, nil, "import", "crontab", "--timezone", "Europe/Berlin", "-")
		if want := strings.Replace(r.out, "crontab tab,", "crontab stdin,", 1); again.code != exitOK || again.out != want {
			t.Fatalf("from stdin: %+v", again)
		}
	})
	t.Run("as JSON", func(t *testing.T) {
		r := runWith(t, goodCrontab, nil, "import", "crontab", "--json", "--timezone", "UTC", "-")
		var v imported
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != exitOK || r.err != "" {
			t.Fatalf("%v: %+v", err, r)
		}
		if !strings.HasPrefix(v.Config, "# From the crontab stdin") || len(v.Warnings) != 2 || v.Warnings[0].Line != 1 || v.Warnings[0].Text == "" {
			t.Fatalf("%+v", v)
		}
		r = runWith(t, "@daily x\n", nil, "import", "crontab", "--json", "--timezone", "UTC", "-")
		if !strings.Contains(r.out, `"warnings": []`) {
			t.Fatalf("no warnings are a list too: %s", r.out)
		}
	})
	t.Run("problems go to stderr, all of them, and nothing is printed", func(t *testing.T) {
		for _, args := range [][]string{nil, {"--json"}} {
			r := runWith(t, "61 * * * * a\n@daily b\n0~9 * * * * \x1b[2J\n", nil, append([]string{"import", "crontab", "-"}, args...)...)
			if r.code != exitFailure || r.out != "" || strings.Contains(r.err, "\x1b") {
				t.Fatalf("%+v", r)
			}
			lines := strings.Split(r.err, "\n")
			if len(lines) != 4 || !strings.HasPrefix(lines[0], "stdin:1: minute field") || !strings.HasPrefix(lines[1], "stdin:3: minute field") || lines[2] != "triggerd: 2 problems" {
				t.Fatalf("stderr %q", r.err)
			}
		}
	})
	t.Run("a system crontab", func(t *testing.T) {
		r := runWith(t, "17 * * * * root run-parts /x\n", nil, "import", "crontab", "--system", "--timezone", "UTC", "-")
		if r.code != exitOK || !strings.Contains(r.out, "ran as user root") || !strings.Contains(r.out, "'run-parts /x'") || !strings.Contains(r.err, "user root") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("a file that is missing", func(t *testing.T) {
		workIn(t, nil)
		if r := runWith(t, "", nil, "import", "crontab", "nope"); r.code != exitFailure || r.out != "" || !strings.Contains(r.err, "nope") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("the machine's zone is what is assumed", func(t *testing.T) {
		t.Setenv("TZ", "Asia/Tokyo")
		r := runWith(t, "@daily x\n", nil, "import", "crontab", "-")
		if r.code != exitOK || !strings.Contains(r.out, "timezone: Asia/Tokyo") || !strings.Contains(r.out, "assumed to be in Asia/Tokyo (the variable TZ)") {
			t.Fatalf("%+v", r)
		}
	})
}

func TestMachineZone(t *testing.T) {
	for _, c := range []struct {
		name, tz, link, zone, from string
	}{
		{"the link", "", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin", "the machine's"},
		{"a relative link", "", "../usr/share/zoneinfo/UTC", "UTC", "the machine's"},
		{"the variable counts before it", "Asia/Tokyo", "/usr/share/zoneinfo/Europe/Berlin", "Asia/Tokyo", "the variable TZ"},
		{"with a colon", ":Asia/Tokyo", "", "Asia/Tokyo", "the variable TZ"},
		{"a rule in place of a name", "CET-1CEST", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin", "the machine's"},
		{"a file in place of a link", "", "", "UTC", "--timezone"},
		{"a link to something else", "", "/etc/zoneinfo/Nowhere/Land", "UTC", "--timezone"},
		{"the machine's own, which is another one elsewhere", "Local", "", "UTC", "--timezone"},
	} {
		env := func(string) (string, bool) { return c.tz, c.tz != "" }
		readlink := func(string) (string, error) {
			if c.link == "" {
				return "", errors.New("not a link")
			}
			return c.link, nil
		}
		if zone, from := machineZone(env, readlink); zone != c.zone || !strings.Contains(from, c.from) {
			t.Errorf("%s: %q from %q, want %q from %q", c.name, zone, from, c.zone, c.from)
		}
	}
}
