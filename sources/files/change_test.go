package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

// Kubernetes shows a volume's files as links through ..data, and changes them all by replacing that one link.
func TestKubernetesSwap(t *testing.T) {
	b := setup(t, nil)
	version := func(n int, text string) {
		dir := fmt.Sprintf("..v%d", n)
		try(t, os.Mkdir(b.path(dir), 0o700))
		write(t, b.path(dir+"/conf.txt"), text)
		try(t, os.Symlink(dir, b.path("..data_new")))
		try(t, os.Rename(b.path("..data_new"), b.path("..data")))
	}
	version(1, "one")
	try(t, os.Symlink("..data/conf.txt", b.path("conf.txt")))
	b.start()
	version(2, "version two")
	b.want("changed conf.txt")
	if p := b.last(); *p.Content != "version two" {
		t.Errorf("payload %+v", p)
	}
}

func TestRoots(t *testing.T) {
	t.Run("one that does not exist yet", func(t *testing.T) {
		b := setup(t, func(o *Options) {
			o.Paths = append(o.Paths, strings.Replace(o.Paths[0], "/**/*.txt", "/later/on/*.dat", 1))
		}).start()
		try(t, os.MkdirAll(b.path("later/on"), 0o700))
		write(t, b.path("later/on/a.dat"), "1")
		b.want("created later/on/a.dat")
	})
	t.Run("one that is removed and made anew", func(t *testing.T) {
		b := setup(t, nil)
		root := b.dir + "/root"
		b.o.Paths = []string{root + "/*.txt", b.dir + "/barrier.txt"}
		try(t, os.Mkdir(root, 0o700))
		write(t, root+"/a.txt", "1")
		b.start()
		try(t, os.RemoveAll(root))
		b.want()
		try(t, os.Mkdir(root, 0o700))
		write(t, root+"/a.txt", "2")
		b.within(func(ctx context.Context) error { return b.mem.Wait(ctx, 2) })
		if got := b.seen(); !slices.Equal(got, []string{"created root/a.txt"}) {
			t.Errorf("stored %q", got)
		}
	})
	t.Run("one that is a single file", func(t *testing.T) {
		b := setup(t, func(o *Options) {
			dir := strings.TrimSuffix(o.Paths[0], "/**/*.txt")
			o.Paths = []string{dir + "/only.conf", dir + "/barrier.txt"}
		}).start()
		write(t, b.path("other.conf"), "1")
		write(t, b.path("only.conf"), "1")
		b.want("created only.conf")
	})
}

func TestPayload(t *testing.T) {
	b := setup(t, func(o *Options) {
		dir := strings.TrimSuffix(o.Paths[0], "/**/*.txt")
		o.Paths = []string{dir + "/in/{customer}/{name}.csv", dir + "/*.{txt,bin}", dir + "/mem"}
		o.Exclude = []string{"secret*", "**/old/**"}
		o.MaxRead = 8
	})
	try(t, os.MkdirAll(b.path("in/acme"), 0o700))
	try(t, os.MkdirAll(b.path("in/old"), 0o700))
	b.start()
	check := func(name, content string, want func(p Payload) bool) {
		t.Helper()
		write(t, b.path(name), content)
		b.within(func(ctx context.Context) error {
			return b.mem.WaitUntil(ctx, name, func(evs []triggerd.Event) bool {
				return len(evs) > 0 && payload(t, evs[len(evs)-1]).Path == b.path(name)
			})
		})
		p := b.last()
		info, err := os.Stat(b.path(name))
		try(t, err)
		if p.Name != filepath.Base(name) || p.Size != int64(len(content)) || !p.MTime.Equal(info.ModTime()) || !want(p) {
			t.Errorf("%s: payload %+v", name, p)
		}
	}
	check("in/acme/orders.csv", "a,b", func(p Payload) bool {
		return p.Match["customer"] == "acme" && p.Match["name"] == "orders" && *p.Content == "a,b"
	})
	check("eight.txt", "12345678", func(p Payload) bool { return *p.Content == "12345678" && p.Match != nil && len(p.Match) == 0 })
	check("nine.txt", "123456789", func(p Payload) bool { return p.Content == nil && p.Error == "" })
	check("b.bin", "\xff\x00", func(p Payload) bool { return p.Content == nil && string(p.ContentBase64) == "\xff\x00" })

	write(t, b.path("secret.txt"), "x")
	write(t, b.path("in/old/x.csv"), "x")
	try(t, os.Symlink("/proc/self/mem", b.path("mem"))) // a regular file that cannot be read at its beginning, not even by root
	b.within(func(ctx context.Context) error { return b.mem.Wait(ctx, 5) })
	if p := b.last(); p.Name != "mem" || p.Error == "" || p.Content != nil || strings.Contains(p.Error, b.dir) {
		t.Errorf("an unreadable file: %+v", p)
	}
	b.want("created in/acme/orders.csv", "created eight.txt", "created nine.txt", "created b.bin", "created mem")
}

func TestContentTooLargeForTheStore(t *testing.T) {
	b := setup(t, nil)
	b.mem.LimitPayload(400)
	b.start()
	write(t, b.path("a.txt"), strings.Repeat("x", 900))
	write(t, b.path("b.txt"), "small")
	b.want("created a.txt", "created b.txt")
	for _, ev := range b.mem.Events() {
		p := payload(t, ev)
		if (p.Name == "a.txt") != (p.Content == nil && strings.Contains(p.Error, "content left out")) {
			t.Errorf("payload %+v", p)
		}
	}
}

func TestWhileDown(t *testing.T) {
	b := setup(t, nil)
	for _, name := range []string{"same.txt", "edited.txt", "removed.txt"} {
		write(t, b.path(name), "before")
	}
	b.start()
	b.stop()
	if got := b.seen(); len(got) != 0 {
		t.Fatalf("files from before the first start: %v", got)
	}
	write(t, b.path("edited.txt"), "after it")
	write(t, b.path("new.txt"), "new")
	try(t, os.Remove(b.path("removed.txt")))
	b.start()
	b.within(func(ctx context.Context) error { return b.mem.Wait(ctx, 2) })
	got := b.seen()
	slices.Sort(got)
	if !slices.Equal(got, []string{"changed edited.txt", "created new.txt"}) {
		t.Fatalf("stored %q", got)
	}
	b.stop()

	b.o.Paths = append(b.o.Paths, b.dir+"/*.csv")
	write(t, b.path("old.csv"), "was there before the patterns changed")
	b.mem.SetCursor(later(t, b.mem.Cursor()))
	b.start()
	b.barrier()
	if got := b.seen(); len(got) != 2 {
		t.Errorf("a wider pattern replays the past: %q", got)
	}
}

// later moves a cursor's time on, so that a file made a moment ago is older than it.
func later(t *testing.T, c triggerd.Cursor) triggerd.Cursor {
	t.Helper()
	var p position
	try(t, json.Unmarshal(c, &p))
	p.At = time.Now().Add(time.Second)
	out, err := json.Marshal(p)
	try(t, err)
	return out
}

func TestAnUnreadablePositionIsAGap(t *testing.T) {
	for name, cursor := range map[string]string{"rubbish": "?", "a newer version": `{"v":2}`, "cut off": `{"v":1,"files":"AAAA"}`} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, nil)
			write(t, b.path("a.txt"), "1")
			b.mem.SetCursor(triggerd.Cursor(cursor))
			b.start()
			write(t, b.path("b.txt"), "1")
			b.within(func(ctx context.Context) error { return b.mem.Wait(ctx, 2) })
			if got := b.seen(); !slices.Equal(got, []string{"gap", "created b.txt"}) {
				t.Errorf("stored %q", got)
			}
		})
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"no paths":      {},
		"not absolute":  {Paths: []string{"in/*.csv"}},
		"valid glob":    {Paths: []string{"/in/[a"}},
		"temporary":     {Paths: []string{"/in/*.tmp"}},
		"used twice":    {Paths: []string{"/in/{a}/{a}"}},
		"exclude":       {Paths: []string{"/in/*"}, Exclude: []string{"[a"}},
		"not be negati": {Paths: []string{"/in/*"}, Settle: -1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want an error with %q", o, err, want)
		}
	}
}

func TestRunEndsWhenItsWatcherDoes(t *testing.T) {
	b := setup(t, nil)
	src, err := New(b.o)
	try(t, err)
	src.watch = func() (*watcher, error) {
		w, err := newWatcher()
		if err == nil {
			err = w.close()
		}
		return w, err
	}
	if err := src.Run(t.Context(), b.mem.Runtime()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}
