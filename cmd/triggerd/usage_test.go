package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir()) // no triggerd.yaml here
	cases := []struct{ line, says string }{
		{"nope", "unknown command"},
		{"evnts", "events"},
		{"events", "list, show"},
		{"events lst", `did you mean "list"`},
		{"events zzz", "only: list, show"},
		{"completion nope", "bash, fish"},
		{"--nope", "unknown flag"},
		{"events list --nope", "unknown flag"},
		{"events list extra", `does not take "extra"`},
		{"events list --limit ten", "invalid argument"},
		{"events list --limit 0", "--limit is 0"},
		{"events list --limit -2", "--limit is -2"},
		{"events list --after -1", "invalid argument"},
		{"events list --json --jsonl", "not both"},
		{"events show", "needs EVENT"},
		{"turns list --state ded", "queued, running"},
		{"turns retry", "needs TURN"},
		{"turns cancel a b", `does not take "b"`},
		{"triggers pause", "needs TRIGGER"},
		{"triggers pause ship --until soon", "--until is"},
		{"triggers pause ship --until 2001-01-01", "has passed"},
		{"triggers list --json --jsonl", "not both"},
		{"apps list --json --jsonl", "not both"},
		{"apps add", "needs CONNECTION"},
		{"fire", "needs TRIGGER"},
		{"fire ship --data x --event 12", "not both"},
		{"explain", "needs EVENT"},
		{"reload now", `does not take "now"`},
		{"import", "needs one of: crontab"},
		{"import crontb", `did you mean "crontab"`},
		{"import crontab", "needs FILE"},
		{"import crontab a b", `does not take "b"`},
		{"import crontab --timezone Mars/Olympus -", "--timezone is"},
		{"import crontab --timezone Local -", "--timezone is"},
		{"validate", "no configuration"},
		{"serve", "no configuration"},
		{"serve --socket x", "server.admin.listen"},
		{"serve --json", "--log-format"},
		{"serve --log-level loud", "--log-level"},
		{"serve --log-format xml", "--log-format"},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			r := runCLI(t, consoletest.Sample(), strings.Fields(c.line)...)
			if r.code != exitUsage || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "--help`") {
				t.Fatalf("exit %d, stderr %q, want exit 2 with %q", r.code, r.err, c.says)
			}
			if r.out != "" {
				t.Fatalf("stdout %q", r.out)
			}
		})
	}
	t.Run("an empty argument", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "events", "show", ""); r.code != exitUsage || !strings.Contains(r.err, "EVENT is empty") {
			t.Fatalf("%+v", r)
		}
	})
}

func TestFailures(t *testing.T) {
	commands := [][]string{
		{"events", "list"}, {"events", "list", "--limit", "-1"}, {"events", "show", "12"}, {"turns", "list"}, {"turns", "show", "a"},
		{"turns", "list", "--after", "abc"}, {"turns", "retry", "a"}, {"turns", "cancel", "a"}, {"explain", "12"}, {"triggers", "list"},
		{"triggers", "pause", "ship"}, {"triggers", "resume", "ship"}, {"fire", "ship"}, {"reload"},
		{"apps", "list"}, {"apps", "add", "orders"}, {"apps", "remove", "orders"},
	}
	for _, args := range commands {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			f := consoletest.Sample()
			f.Err = triggerd.ErrUnavailable
			if r := runCLI(t, f, args...); r.code != exitFailure || r.out != "" || r.err != "triggerd: store unavailable\n" {
				t.Fatalf("the daemon's refusal: %+v", r)
			}
			r := runWith(t, "", func() (console.Backend, error) { return nil, errors.New("no way in") }, args...)
			if r.code != exitFailure || r.out != "" || r.err != "triggerd: no way in\n" {
				t.Fatalf("no daemon: %+v", r)
			}
		})
	}
	t.Run("an error cannot steer the terminal", func(t *testing.T) {
		f := consoletest.Sample()
		f.Err = errors.New("bad \x1b[2J id")
		if r := runCLI(t, f, "reload"); strings.Contains(r.err, "\x1b") || !strings.Contains(r.err, `bad \x1b[2J id`) {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("output that cannot be written", func(t *testing.T) {
		connect := func() (console.Backend, error) { return consoletest.Sample(), nil }
		for _, args := range [][]string{{"events", "list"}, {"events", "list", "--json"}, {"turns", "list", "--jsonl"}, {"version"}, {"fire", "ship"}} {
			var errs strings.Builder
			code := execute(t.Context(), args, Streams{In: strings.NewReader(""), Out: fullDisk{}, Err: &errs}, connect)
			if code != exitFailure || !strings.Contains(errs.String(), "write output: no space") {
				t.Errorf("%v: exit %d, stderr %q", args, code, errs.String())
			}
		}
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestHelp(t *testing.T) {
	t.Run("every command explains itself in a line and with an example", func(t *testing.T) {
		root := newRoot(Streams{})
		var check func(cmd *cobra.Command)
		check = func(cmd *cobra.Command) {
			for _, sub := range cmd.Commands() {
				if sub.Name() == "completion" || sub.Name() == "help" {
					continue // cobra's own
				}
				if sub.Short == "" || strings.HasSuffix(sub.Short, ".") {
					t.Errorf("%s: short help %q", sub.CommandPath(), sub.Short)
				}
				if !sub.HasSubCommands() && !strings.Contains(sub.Example, sub.CommandPath()) {
					t.Errorf("%s has no example of itself: %q", sub.CommandPath(), sub.Example)
				}
				check(sub)
			}
		}
		check(root)
	})
	t.Run("goes to stdout and is no failure", func(t *testing.T) {
		for _, args := range [][]string{{}, {"--help"}, {"fire", "--help"}, {"help", "turns"}, {"events", "list", "-h"}} {
			if r := runCLI(t, consoletest.Sample(), args...); r.code != exitOK || !strings.Contains(r.out, "Usage:") || r.err != "" {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
	t.Run("completion", func(t *testing.T) {
		if r := runCLI(t, consoletest.Sample(), "completion", "bash"); r.code != exitOK || !strings.Contains(r.out, "triggerd") {
			t.Fatalf("%+v", r)
		}
		if r := runCLI(t, consoletest.Sample(), "__complete", "turns", ""); r.code != exitOK || !strings.Contains(r.out, "cancel\t") {
			t.Fatalf("%+v", r)
		}
	})
}
