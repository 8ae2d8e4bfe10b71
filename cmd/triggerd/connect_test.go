package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

// serveAt runs the admin API over a fake at path.
func serveAt(t *testing.T, path string) {
	t.Helper()
	ln, err := console.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(console.NewServer(consoletest.Sample(), zerolog.Nop()))
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
}

// workIn changes to a fresh folder with a short path, and writes files there.
func workIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "td")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("STATE_DIRECTORY", "")
	t.Chdir(dir)
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCommandsFindTheDaemon(t *testing.T) {
	cases := []struct {
		name   string
		files  map[string]string
		socket string // relative to the working directory
		args   string
	}{
		{"in the default store", nil, "data/admin.sock", ""},
		{"in the store of ./triggerd.yaml", map[string]string{"triggerd.yaml": "nats: {embedded: {store: store}}"}, "store/admin.sock", ""},
		{"in the store of --config", map[string]string{"a.yaml": "nats: {embedded: {store: other}}"}, "other/admin.sock", "--config a.yaml"},
		{"in the store of --overlay", map[string]string{"a.yaml": "nats: {embedded: {store: other}}", "b.yaml": "nats: {embedded: {store: third}}"}, "third/admin.sock", "--config a.yaml --overlay b.yaml"},
		{"where the configuration says", map[string]string{"a.yaml": "server: {admin: {listen: 'unix:sub/x.sock'}}"}, "sub/x.sock", "--config a.yaml"},
		{"although its variables are unset here", map[string]string{"a.yaml": "secrets: {s: {env: NOT_SET_HERE}}\nx-a: ${NOT_SET_HERE}\nnats: {embedded: {store: s}}"}, "s/admin.sock", "--config a.yaml"},
		{"by --socket, whatever the configuration", map[string]string{"triggerd.yaml": "broken: ["}, "my.sock", "--socket my.sock"},
		{"by --socket as a URL", nil, "my.sock", "--socket unix:my.sock"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := workIn(t, c.files)
			serveAt(t, filepath.Join(dir, c.socket))
			r := runWith(t, "", nil, append([]string{"triggers", "list", "--jsonl"}, strings.Fields(c.args)...)...)
			if r.code != exitOK || strings.Count(r.out, "\n") != 3 {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestCommandsWithoutDaemon(t *testing.T) {
	t.Run("name the path and a hint", func(t *testing.T) {
		dir := workIn(t, nil)
		r := runWith(t, "", nil, "turns", "list")
		if r.code != exitFailure || r.out != "" || !strings.Contains(r.err, filepath.Join(dir, "data/admin.sock")) || !strings.Contains(r.err, "is `triggerd serve` running?") {
			t.Fatalf("%+v", r)
		}
		if _, err := os.Stat("data"); err == nil {
			t.Fatal("asking made the store's folder")
		}
	})
	t.Run("do not guess when the configuration is broken", func(t *testing.T) {
		dir := workIn(t, map[string]string{"triggerd.yaml": "natz: {}\n"})
		serveAt(t, filepath.Join(dir, "data/admin.sock"))
		r := runWith(t, "", nil, "turns", "list")
		if r.code != exitFailure || !strings.Contains(r.err, "triggerd.yaml:1:1") || !strings.Contains(r.err, "--socket") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("name a configuration that is missing", func(t *testing.T) {
		workIn(t, nil)
		if r := runWith(t, "", nil, "turns", "list", "--config", "nope.yaml"); r.code != exitFailure || !strings.Contains(r.err, "nope.yaml") {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("refuse a socket path over the limit", func(t *testing.T) {
		workIn(t, nil)
		if r := runWith(t, "", nil, "turns", "list", "--socket", "/"+strings.Repeat("x", 200)); r.code != exitFailure || !strings.Contains(r.err, "107") {
			t.Fatalf("%+v", r)
		}
	})
}
