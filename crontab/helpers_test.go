package crontab_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/crontab"
	"github.com/triggerd/triggerd/expr"
)

func options() crontab.Options {
	return crontab.Options{File: "tab", Timezone: "Europe/Berlin", Zone: "--timezone"}
}

func system() crontab.Options {
	o := options()
	o.System = true
	return o
}

func read(t *testing.T, text string, o crontab.Options) *crontab.Result {
	t.Helper()
	r, err := crontab.Import(strings.NewReader(text), o)
	if err != nil {
		t.Fatalf("import: %v\n%s", err, text)
	}
	return r
}

// one is the only job of a crontab.
func one(t *testing.T, text string) crontab.Job {
	t.Helper()
	r := read(t, text, options())
	if len(r.Jobs) != 1 {
		t.Fatalf("%d jobs in %q", len(r.Jobs), text)
	}
	load(t, r)
	return r.Jobs[0]
}

// environment has everything that a configuration may ask for, secrets too.
func environment(name string) (string, bool) {
	switch name {
	case "STATE_DIRECTORY", "XDG_RUNTIME_DIR":
		return "", false
	case "HOME":
		return "/home/ann", true
	}
	return "value of " + name, true
}

// load gives the produced YAML to the code that reads configurations.
func load(t *testing.T, r *crontab.Result) *configs.Config {
	t.Helper()
	c, err := configs.Parse("out.yaml", r.YAML, configs.Options{Env: environment})
	if err != nil {
		t.Fatalf("the configuration is refused: %v\n%s", err, r.YAML)
	}
	return c
}

// rendered is what a template of the configuration is at run time.
func rendered(t *testing.T, template string) string {
	t.Helper()
	compiled, err := expr.CompileTemplate(template, expr.Action)
	if err != nil {
		t.Fatalf("template %q: %v", template, err)
	}
	text, err := compiled.Text(&expr.Vars{}, func(name string) (string, error) { return "secret " + name, nil })
	if err != nil {
		t.Fatalf("template %q: %v", template, err)
	}
	return text
}

// same checks that a configuration runs what the jobs say.
func same(t *testing.T, r *crontab.Result) {
	t.Helper()
	c := load(t, r)
	if len(c.Triggers) != len(r.Jobs) {
		t.Fatalf("%d triggers of %d jobs\n%s", len(c.Triggers), len(r.Jobs), r.YAML)
	}
	for _, j := range r.Jobs {
		trigger, ok := c.Triggers[j.Name]
		if !ok || trigger.Run.Exec == nil {
			t.Fatalf("no trigger %q\n%s", j.Name, r.YAML)
		}
		exec := trigger.Run.Exec
		var got []string
		for _, arg := range exec.Command {
			got = append(got, rendered(t, arg))
		}
		if want := []string{j.Shell, "-c", j.Command}; !slices.Equal(got, want) {
			t.Errorf("line %d runs %q, want %q", j.Line, got, want)
		}
		if got := rendered(t, *exec.Stdin); got != j.Stdin {
			t.Errorf("line %d reads %q, want %q", j.Line, got, j.Stdin)
		}
		env, want := map[string]string{}, map[string]string{}
		for name, v := range exec.Env {
			env[name] = rendered(t, v)
		}
		for _, v := range j.Env {
			want[v.Name] = v.Value
			if v.Secret != "" {
				want[v.Name] = "secret " + v.Secret
			}
		}
		if !maps.Equal(env, want) {
			t.Errorf("line %d has the environment %q, want %q", j.Line, env, want)
		}
		if j.Schedule == "@reboot" {
			if !slices.Equal(trigger.Connection, []string{"triggerd"}) || !slices.Equal(trigger.Event, []string{"daemon.started"}) {
				t.Errorf("line %d: %+v", j.Line, trigger)
			}
		} else if s := trigger.Cron; s == nil || s.Schedule != j.Schedule || s.Timezone != j.Timezone || s.CatchUp != "none" {
			t.Errorf("line %d: schedule %+v, want %q in %q", j.Line, s, j.Schedule, j.Timezone)
		}
		if trigger.Retry.Attempts != 1 || trigger.Timeout.String() != "7d" && trigger.Timeout.String() != "1w" {
			t.Errorf("line %d: %d attempts, time-out %v", j.Line, trigger.Retry.Attempts, trigger.Timeout)
		}
	}
}
