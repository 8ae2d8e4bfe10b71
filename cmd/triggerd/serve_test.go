package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/console"
)

// reloads answers each Reload with the next error.
type reloads struct {
	errs  chan error
	calls chan struct{}
}

func (r *reloads) Reload(context.Context) (console.ReloadResult, error) {
	r.calls <- struct{}{}
	return console.ReloadResult{Changed: true, Triggers: []string{"+new"}, Version: "v2"}, <-r.errs
}

func TestReloadOnHangup(t *testing.T) {
	var logged bytes.Buffer
	d := &reloads{errs: make(chan error, 2), calls: make(chan struct{}, 2)}
	d.errs <- errors.New("a.yaml:1:1: unknown key")
	d.errs <- nil
	ctx, cancel := context.WithCancel(t.Context())
	hangups, done := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(done)
		reloadOn(ctx, hangups, d, zerolog.New(&logged))
	}()
	hangups <- syscall.SIGHUP
	<-d.calls
	hangups <- syscall.SIGHUP // taken only after the first reload is logged
	<-d.calls
	cancel()
	<-done

	log := strings.Split(strings.TrimSpace(logged.String()), "\n")
	if len(log) != 2 || !strings.Contains(log[0], `"error"`) || !strings.Contains(log[0], "a.yaml:1:1") {
		t.Fatalf("log %q", log)
	}
	if !strings.Contains(log[1], `"info"`) || !strings.Contains(log[1], `"+new"`) || !strings.Contains(log[1], `"v2"`) {
		t.Fatalf("log %q", log)
	}
}

func TestServeRefusesABadConfiguration(t *testing.T) {
	workIn(t, map[string]string{"triggerd.yaml": "triggerz: {}\n"})
	r := runWith(t, "", nil, "serve")
	if r.code != exitFailure || r.out != "" || !strings.Contains(r.err, "triggerd.yaml:1:1") {
		t.Fatalf("%+v", r)
	}
	if _, err := os.Stat("data"); err == nil {
		t.Fatal("a refused configuration made the store's folder")
	}
}

func TestLogger(t *testing.T) {
	cases := []struct {
		name  string
		flags logFlags
		has   string
	}{
		{"json where nobody watches", logFlags{level: "info"}, `{"level":"info","time":"`},
		{"json", logFlags{format: "json", level: "debug"}, `"message":"hello"`},
		{"console", logFlags{format: "console", level: "info"}, " INF hello"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			log, _, err := c.flags.logger(&out)
			if err != nil {
				t.Fatal(err)
			}
			log.Info().Msg("hello")
			if !strings.Contains(out.String(), c.has) || strings.Contains(out.String(), "\x1b") {
				t.Fatalf("logged %q", out.String())
			}
		})
	}
	t.Run("level", func(t *testing.T) {
		var out bytes.Buffer
		log, _, err := (&logFlags{format: "json", level: "warn"}).logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info().Msg("no")
		log.Warn().Msg("yes")
		if strings.Contains(out.String(), "no") || !strings.Contains(out.String(), "yes") {
			t.Fatalf("logged %q", out.String())
		}
	})
}
