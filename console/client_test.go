package console_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

// overSocket serves f on a unix socket and returns a client of it.
func overSocket(t *testing.T, f *consoletest.Fake) console.Backend {
	t.Helper()
	path := filepath.Join(shortDir(t), "admin.sock")
	ln, err := console.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(console.NewServer(f, zerolog.Nop()))
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	return dial(t, "unix:"+path)
}

func overTCP(t *testing.T, f *consoletest.Fake) console.Backend {
	t.Helper()
	srv := httptest.NewServer(console.NewServer(f, zerolog.Nop()))
	t.Cleanup(srv.Close)
	return dial(t, srv.URL+"/")
}

func dial(t *testing.T, addr string) *console.Client {
	t.Helper()
	c, err := console.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// shortDir is a temporary folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "td")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestFakeIsABackend(t *testing.T) {
	consoletest.Exercise(t, func(_ *testing.T, f *consoletest.Fake) console.Backend { return f })
}

func TestClientOverUnixSocketIsABackend(t *testing.T) { consoletest.Exercise(t, overSocket) }

func TestClientOverTCPIsABackend(t *testing.T) { consoletest.Exercise(t, overTCP) }

func TestClientWithoutDaemon(t *testing.T) {
	path := filepath.Join(shortDir(t), "admin.sock")
	c := dial(t, path)
	t.Run("names the path and gives a hint", func(t *testing.T) {
		_, err := c.Triggers(t.Context())
		if !errors.Is(err, console.ErrUnreachable) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "is `triggerd serve` running?") {
			t.Fatalf("error %v", err)
		}
		if strings.Contains(err.Error(), "http://") {
			t.Fatalf("error %v shows the made-up URL", err)
		}
	})
	t.Run("is not ready", func(t *testing.T) {
		state := c.Ready(t.Context())
		if state.Ready || len(state.Reasons) != 1 || !strings.Contains(state.Reasons[0], path) {
			t.Fatalf("state %+v", state)
		}
	})
	t.Run("a stale socket is unreachable too", func(t *testing.T) {
		stale(t, path)
		if _, err := c.Triggers(t.Context()); !errors.Is(err, console.ErrUnreachable) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestClientReadiness(t *testing.T) {
	f := consoletest.Sample()
	f.Readiness = console.Readiness{Reasons: []string{"store: disk full"}, ConfigError: "a.yaml:1:1: x", Sources: []console.SourceStatus{}}
	state := overSocket(t, f).Ready(t.Context())
	if state.Ready || len(state.Reasons) != 1 || state.Reasons[0] != "store: disk full" || state.ConfigError == "" {
		t.Fatalf("state %+v: a 503 must still carry its reasons", state)
	}
}

func TestClientBadAnswers(t *testing.T) {
	cases := []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"an error without JSON", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, "the daemon answered 502 Bad Gateway"},
		{"a redirect is not followed", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "the daemon answered 302 Found"},
		{"not JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, "read the daemon's answer"},
		{"not a list", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"a":1}`)) }, "not a list"},
		{"a list cut short", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"name":"a"}`)) }, "read the daemon's answer"},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "broke"},
		{"a daemon without the path", func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/api/v0"
			console.NewServer(consoletest.Sample(), zerolog.Nop()).ServeHTTP(w, r)
		}, "another version"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.answer)
			defer srv.Close()
			list, err := dial(t, srv.URL).Triggers(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || list != nil {
				t.Fatalf("got %v, error %v, want an error with %q", list, err, c.want)
			}
			if errors.Is(err, triggerd.ErrNotFound) || errors.Is(err, console.ErrUnreachable) {
				t.Fatalf("error %v passes for another one", err)
			}
		})
	}
	t.Run("unknown fields of a newer daemon are ignored", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"name":"a","shiny":1}]`)) }))
		defer srv.Close()
		list, err := dial(t, srv.URL).Triggers(t.Context())
		if err != nil || len(list) != 1 || list[0].Name != "a" {
			t.Fatalf("got %v, %v", list, err)
		}
	})
}

func TestClientContextEndsBeforeTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := overSocket(t, consoletest.Sample()).Triggers(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, console.ErrUnreachable) {
		t.Fatalf("error %v", err)
	}
}

func TestDialRefusesAddresses(t *testing.T) {
	long := "/" + strings.Repeat("x", console.MaxSocketPath)
	for _, addr := range []string{"", "unix:", long, "unix:" + long, "http://", "http://h/?a=b", "http://user:pw@host"} {
		if _, err := console.Dial(addr); err == nil {
			t.Errorf("Dial(%q) is fine with it", addr)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("error %v shows a password", err)
		}
	}
}

// stale leaves a socket at path as a killed process does.
func stale(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}
