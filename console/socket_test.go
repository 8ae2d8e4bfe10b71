package console_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/triggerd/triggerd/console"
)

func TestListenUnix(t *testing.T) {
	path := func(t *testing.T) string { return filepath.Join(shortDir(t), "s") }

	t.Run("only the owner may connect, whatever the umask", func(t *testing.T) {
		defer syscall.Umask(syscall.Umask(0))
		p := path(t)
		ln := mustListen(t, p)
		defer func() { _ = ln.Close() }()
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	})
	t.Run("makes its folder, private", func(t *testing.T) {
		p := filepath.Join(shortDir(t), "triggerd", "s")
		_ = mustListen(t, p).Close()
		info, err := os.Stat(filepath.Dir(p))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	})
	t.Run("close removes the socket", func(t *testing.T) {
		p := path(t)
		_ = mustListen(t, p).Close()
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("still there: %v", err)
		}
	})
	t.Run("replaces a dead process's socket", func(t *testing.T) {
		p := path(t)
		stale(t, p)
		ln := mustListen(t, p)
		defer func() { _ = ln.Close() }()
		if conn, err := net.Dial("unix", p); err != nil {
			t.Fatal(err)
		} else {
			_ = conn.Close()
		}
	})
	t.Run("leaves a live one alone", func(t *testing.T) {
		p := path(t)
		first := mustListen(t, p)
		defer func() { _ = first.Close() }()
		if _, err := console.ListenUnix(p); !errors.Is(err, console.ErrSocketInUse) {
			t.Fatalf("error %v", err)
		}
		if conn, err := net.Dial("unix", p); err != nil {
			t.Fatalf("the first one is gone: %v", err)
		} else {
			_ = conn.Close()
		}
	})
	t.Run("never removes anything else", func(t *testing.T) {
		dir := shortDir(t)
		file, link, sub := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "sub")
		sock := filepath.Join(dir, "sock")
		stale(t, sock)
		if err := errors.Join(os.WriteFile(file, []byte("keep"), 0o600), os.Symlink(sock, link), os.Mkdir(sub, 0o700)); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{file, link, sub} {
			if _, err := console.ListenUnix(p); err == nil || !strings.Contains(err.Error(), "not a socket") {
				t.Errorf("%s: error %v", p, err)
			}
			if _, err := os.Lstat(p); err != nil {
				t.Errorf("%s is gone: %v", p, err)
			}
		}
	})
	t.Run("refuses a path over the limit with a hint", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), strings.Repeat("x", console.MaxSocketPath))
		if _, err := console.ListenUnix(p); err == nil || !strings.Contains(err.Error(), "107") || !strings.Contains(err.Error(), "server.admin.listen") {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("takes a path of exactly the limit", func(t *testing.T) {
		dir := shortDir(t)
		_ = mustListen(t, filepath.Join(dir, strings.Repeat("x", console.MaxSocketPath-len(dir)-1))).Close()
	})
}

func mustListen(t *testing.T, path string) net.Listener {
	t.Helper()
	ln, err := console.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func TestSocketPath(t *testing.T) {
	runtime := "/run/user/7"
	long := "/srv/" + strings.Repeat("deep/", 30)
	cases := []struct {
		name, listen, store, runtime string
		want                         string // "" = refused; ending in "*.sock" = any hash
	}{
		{"written out", "unix:/run/t/admin.sock", "/data", runtime, "/run/t/admin.sock"},
		{"written out, relative", "unix:t.sock", "/data", runtime, "t.sock"},
		{"in the store", "", "/data", runtime, "/data/admin.sock"},
		{"in the store, no runtime folder", "", "/data", "", "/data/admin.sock"},
		{"too long a store", "", long, runtime, "/run/user/7/triggerd/*.sock"},
		{"too long a store, no runtime folder", "", long, "", ""},
		{"no store", "", "", runtime, "/run/user/7/triggerd/*.sock"},
		{"no store, no runtime folder", "", "", "", ""},
		{"too long, written out", "unix:" + long + "admin.sock", "/data", runtime, ""},
		{"not a socket", "127.0.0.1:99", "/data", runtime, ""},
		{"nothing after unix:", "unix:", "/data", runtime, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.runtime)
			got, err := console.SocketPath(c.listen, c.store)
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "unix:<path>") {
					t.Fatalf("got %q, %v, want a refusal that says what to set", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if ok, _ := filepath.Match(c.want, got); !ok {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("a store has one place, another store another", func(t *testing.T) {
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		a, _ := console.SocketPath("", long)
		b, _ := console.SocketPath("", long+".")
		c, _ := console.SocketPath("", long+"x")
		if a == "" || a != b || a == c {
			t.Fatalf("got %q, %q, %q", a, b, c)
		}
	})
}
