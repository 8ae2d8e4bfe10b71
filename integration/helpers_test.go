package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// editable is an installation whose configuration is replaced while it runs.
type editable struct {
	*installation
	head string // the server and nats sections
}

func newEditable(t *testing.T, body string) *editable {
	t.Helper()
	e := &editable{installation: newInstallation(t, "", "")}
	e.head = e.read()
	e.set(body)
	return e
}

// set replaces what follows the server and nats sections, in one step as a deployment does.
func (e *editable) set(body string) {
	e.t.Helper()
	next := e.config + ".next"
	writeFile(e.t, next, e.head+body)
	if err := os.Rename(next, e.config); err != nil {
		e.t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// script writes an executable file into the installation's folder and returns its path.
func (in *installation) script(name, text string) string {
	in.t.Helper()
	path := filepath.Join(in.dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		in.t.Fatal(err)
	}
	return path
}

// must runs a command that has to succeed and returns what it printed.
func (in *installation) must(args ...string) string {
	in.t.Helper()
	out, errs, code := in.command(args...)
	if code != 0 {
		in.t.Fatalf("triggerd %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// asJSON runs a command with --json and decodes its one document; fields that v does not know fail the test.
func asJSON[T any](in *installation, args ...string) T {
	in.t.Helper()
	var v T
	out := in.must(append(args, "--json")...)
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		in.t.Fatalf("triggerd %s --json: %v in\n%s", strings.Join(args, " "), err, out)
	}
	if _, err := dec.Token(); err != io.EOF {
		in.t.Fatalf("triggerd %s --json prints more than one document:\n%s", strings.Join(args, " "), out)
	}
	return v
}

// admin gets a path of the admin listener, as a scraper on the socket does.
func (in *installation) admin(path string) (int, string) {
	in.t.Helper()
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", in.socket())
		},
	}}
	res, err := c.Get("http://triggerd" + path)
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		in.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// source is a connection's row in /readyz?verbose.
func (in *installation) source(connection string) console.SourceStatus {
	in.t.Helper()
	for _, s := range in.client().Ready(in.t.Context()).Sources {
		if s.Connection == connection {
			return s
		}
	}
	in.t.Fatalf("no connection %s in /readyz?verbose", connection)
	return console.SourceStatus{}
}

// reload is `triggerd reload`, which must succeed.
func (in *installation) reload() console.ReloadResult {
	in.t.Helper()
	return asJSON[console.ReloadResult](in, "reload")
}

// explain returns the verdicts on an event by trigger.
func (in *installation) explain(ref string) (console.Explanation, map[string]console.Verdict) {
	in.t.Helper()
	ex := asJSON[console.Explanation](in, "explain", ref)
	by := map[string]console.Verdict{}
	for _, v := range ex.Verdicts {
		by[v.Trigger] = v
	}
	return ex, by
}

// turn waits until the event's turn for the trigger is in one of the states, and returns it.
func (in *installation) turn(trigger, event string, states ...string) console.TurnInfo {
	in.t.Helper()
	var found console.TurnInfo
	var last []console.TurnInfo
	defer func() {
		if in.t.Failed() && found.Key == "" {
			in.t.Logf("turns of %s: %+v", trigger, last)
		}
	}()
	await(in.t, "the turn of "+trigger+" for "+event+" is "+strings.Join(states, " or "), 20*time.Second, func() bool {
		last = in.turns(trigger)
		for _, t := range last {
			if t.EventID == event && slices.Contains(states, t.State) {
				found = t
				return true
			}
		}
		return false
	})
	return found
}

// lines are the parsed lines of a daemon's log whose message is msg.
func (p *process) lines(msg string) []map[string]any {
	var out []map[string]any
	for line := range bytes.Lines([]byte(p.log.String())) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil && m["message"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// awaitLog waits for a log line with the message.
func (p *process) awaitLog(msg string, n int) []map[string]any {
	p.in.t.Helper()
	var found []map[string]any
	await(p.in.t, "log line "+msg, 20*time.Second, func() bool {
		found = p.lines(msg)
		return len(found) >= n
	})
	return found
}

func mustContain(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q:\n%s", what, part, text)
		}
	}
}
