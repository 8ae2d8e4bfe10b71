package configs

import (
	"reflect"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	base := "defaults: {timezone: UTC}\n" + rule + "  tick:\n    cron: '@daily'\n" + run
	labelled := "server: {labels: {host: a}}\n" + base
	old := mustParse(t, base)
	t.Run("what means the same is no change", func(t *testing.T) {
		for name, doc := range map[string]string{
			"the same":          base,
			"a comment":         "# new\n" + base,
			"reformatted":       "triggers: {tick: {run: {exec: {command: [\"cat\"]}}, cron: {schedule: '@daily', timezone: UTC}}, a: {connection: [in], run: {exec: {command: ['cat']}}}}\nconnections: [{name: in, webhook: {verify: {scheme: 'none'}}}]\n",
			"no labels":         strings.ReplaceAll(base, "    connection: in\n", "    connection: in\n    runs_on: {}\n"),
			"of another daemon": base + "server: {labels: {host: b}}\n",
			"said default":      base + "    timeout: 60m\n    overlap: skip\nserver: {concurrency: 64}\n",
		} {
			next := mustParse(t, doc)
			if c := Diff(old, next); !c.Empty() {
				t.Errorf("%s: %+v", name, c)
			}
			if old.Version() != next.Version() {
				t.Errorf("%s: the version differs", name)
			}
		}
	})
	for _, c := range []struct {
		name, doc string
		want      Change
	}{
		{"added and removed", "defaults: {timezone: UTC}\n" + hook + "triggers:\n  b:\n    connection: in\n" + run, Change{
			Connections: Names{Removed: []string{"tick"}}, Triggers: Names{Added: []string{"b"}, Removed: []string{"a", "tick"}}}},
		{"an inline schedule changes its connection alone", "defaults: {timezone: UTC}\n" + rule + "  tick:\n    cron: '@hourly'\n" + run, Change{
			Connections: Names{Changed: []string{"tick"}}}},
		{"a default changes what it reaches", "defaults: {timezone: Europe/Rome, triggers: {timeout: 1m}}\n" + rule + "    timeout: 1h\n  tick:\n    cron: '@daily'\n" + run, Change{
			Connections: Names{Changed: []string{"tick"}}, Triggers: Names{Changed: []string{"tick"}}}},
		{"a connection's daemons, and so those of the triggers that inherit them", strings.Replace(labelled, "in: {", "in: {runs_on: {host: a}, ", 1), Change{
			Connections: Names{Changed: []string{"in"}}, Triggers: Names{Changed: []string{"a"}}}},
		{"a trigger's daemons", labelled + "    runs_on: {host: a}\n", Change{
			Connections: Names{Changed: []string{"tick"}}, Triggers: Names{Changed: []string{"tick"}}}},
		{"an action", base + "    filter: 'true'\n", Change{Triggers: Names{Changed: []string{"tick"}}}},
		{"settings and secrets", base + "server: {concurrency: 2}\nhistory: {events: 1d}\nsecrets: {s: {env: TOKEN}}\n", Change{
			Secrets: Names{Added: []string{"s"}}, Settings: []string{"history", "server"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := mustParse(t, c.doc)
			if got := Diff(old, next); !reflect.DeepEqual(got, c.want) || got.Empty() {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			rules := !c.want.Connections.Empty() || !c.want.Triggers.Empty()
			if same := old.Version() == next.Version(); same == rules {
				t.Errorf("version is the same: %v", same)
			}
		})
	}
	t.Run("against nothing", func(t *testing.T) {
		if got := Diff(nil, old); len(got.Connections.Added) != 2 || len(got.Triggers.Added) != 2 {
			t.Errorf("got %+v", got)
		}
		if got := Diff(nil, nil); !got.Empty() {
			t.Errorf("got %+v", got)
		}
	})
}
