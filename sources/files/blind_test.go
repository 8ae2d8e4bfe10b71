package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

// deaf is a watcher that tells only what a test says, so that fake time can run.
type deaf struct {
	events chan fsnotify.Event
	errors chan error
	full   atomic.Bool // the system has no watch left
}

func (d *deaf) open() (*watcher, error) {
	return &watcher{
		add: func(string) error {
			if d.full.Load() {
				return syscall.ENOSPC
			}
			return nil
		},
		remove: func(string) error { return nil },
		close:  func() error { return nil },
		events: d.events, errors: d.errors,
	}, nil
}

// inBubble runs test in fake time with a source over dir and a deaf watcher.
func inBubble(t *testing.T, full bool, test func(t *testing.T, b *bench, d *deaf)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{events: make(chan fsnotify.Event), errors: make(chan error)}
		d.full.Store(full)
		b := &bench{t: t, dir: dir, mem: sourcetest.NewMemory("drop")}
		src, err := New(Options{Paths: []string{dir + "/*.txt"}, Settle: time.Second})
		try(t, err)
		src.watch = d.open
		rt := b.mem.Runtime()
		b.status = rt.Status
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- src.Run(ctx, rt) }()
		synctest.Wait()
		test(t, b, d)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// after lets fake time pass and checks what is stored then.
func (b *bench) after(d time.Duration, want ...string) {
	b.t.Helper()
	time.Sleep(d) // fake time
	synctest.Wait()
	if got := b.seen(); !slices.Equal(got, append([]string{}, want...)) {
		b.t.Fatalf("after %v stored %q, want %q", d, got, want)
	}
}

func TestASlowWriterGivesOneEventAtTheEnd(t *testing.T) {
	inBubble(t, false, func(t *testing.T, b *bench, d *deaf) {
		for i := range 30 {
			write(t, b.path("a.txt"), strings.Repeat("x", i))
			d.events <- fsnotify.Event{Name: b.path("a.txt"), Op: fsnotify.Write}
			b.after(900 * time.Millisecond)
		}
		b.after(101*time.Millisecond, "created a.txt")
		b.after(time.Hour, "created a.txt")
	})
}

func TestOverflow(t *testing.T) {
	inBubble(t, false, func(t *testing.T, b *bench, d *deaf) {
		write(t, b.path("missed.txt"), "1")
		b.after(10 * time.Second)
		d.errors <- fsnotify.ErrEventOverflow
		b.after(0, "gap")
		b.after(time.Second, "gap", "created missed.txt")
		if gap := b.mem.Events()[0]; gap.Type != sources.GapType || !strings.Contains(string(gap.Payload), "inotify") {
			t.Errorf("gap %+v", gap)
		}
	})
}

func TestScanFindsWhatWatchesMissed(t *testing.T) {
	inBubble(t, false, func(t *testing.T, b *bench, d *deaf) {
		write(t, b.path("a.txt"), "1")
		b.after(scanEvery - time.Second)
		b.after(2*time.Second, "created a.txt")
		write(t, b.path("a.txt"), "22")
		b.after(scanEvery+2*time.Second, "created a.txt", "changed a.txt")
		try(t, os.Remove(b.path("a.txt")))
		b.after(scanEvery+2*time.Second, "created a.txt", "changed a.txt")
		write(t, b.path("a.txt"), "333")
		b.after(scanEvery+2*time.Second, "created a.txt", "changed a.txt", "created a.txt")
	})
}

func TestWatchLimit(t *testing.T) {
	inBubble(t, true, func(t *testing.T, b *bench, d *deaf) {
		if got := b.status.Snapshot().Error; !strings.Contains(got, "fs.inotify.max_user_watches") {
			t.Errorf("status %q", got)
		}
		write(t, b.path("a.txt"), "1")
		b.after(pollEvery+2*time.Second, "created a.txt")
		d.full.Store(false)
		b.after(pollEvery, "created a.txt")
		if got := b.status.Snapshot().Error; got != "" {
			t.Errorf("the limit was raised, the status still says %q", got)
		}
	})
}

func TestWithoutAWatcherItPolls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, dir: dir, mem: sourcetest.NewMemory("drop")}
		src, err := New(Options{Paths: []string{dir + "/*.txt"}})
		try(t, err)
		src.watch = func() (*watcher, error) { return nil, syscall.EMFILE }
		rt := b.mem.Runtime()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- src.Run(ctx, rt) }()
		synctest.Wait()
		write(t, b.path("a.txt"), "1")
		b.after(pollEvery+2*SettleDefault, "created a.txt")
		if got := rt.Status.Snapshot().Error; got == "" {
			t.Error("the status does not say that nothing is watched")
		}
		cancel()
		try(t, <-ended)
	})
}

func TestPosition(t *testing.T) {
	ps, err := compileAll([]string{"/in/*"}, nil)
	try(t, err)
	now := time.Now()
	index := make(map[string]state)
	for i := range maxIndex + 500 {
		index[fmt.Sprintf("/in/%d", i)] = state{size: 1, mtime: int64(i), ctime: now.UnixNano() + int64(i)}
	}
	cursor := encode(index, ps, now.Add(time.Hour).UnixNano(), now)
	if len(cursor) > 30_000 {
		t.Errorf("a full cursor has %d bytes", len(cursor))
	}
	mem, err := decode(cursor, ps)
	try(t, err)
	for path, s := range index {
		if mem.verdict(path, s) != isKnown {
			t.Fatalf("%s is not known", path)
		}
	}
	for name, c := range map[string]struct {
		path string
		s    state
		want int
	}{
		"a listed file in another state":               {fmt.Sprintf("/in/%d", maxIndex), state{size: 2, ctime: now.UnixNano() + 9000}, isChanged},
		"an unlisted file that changed since":          {"/in/1", state{size: 2, ctime: now.UnixNano() + 9000}, isNew},
		"a new file":                                   {"/in/new", state{size: 2, ctime: now.UnixNano() + 9000}, isNew},
		"a new file with an old modification time":     {"/in/old", state{size: 2, mtime: 1, ctime: now.UnixNano() + 9000}, isNew},
		"what is older than everything that is listed": {"/in/elder", state{size: 2, ctime: now.UnixNano()}, isKnown},
	} {
		if got := mem.verdict(c.path, c.s); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
	t.Run("does not claim to know what is pending", func(t *testing.T) {
		pending := now.UnixNano() + 10
		mem, err := decode(encode(index, ps, pending, now), ps)
		try(t, err)
		if got := mem.verdict("/in/pending", state{size: 1, ctime: pending}); got != isNew {
			t.Errorf("verdict %d", got)
		}
	})
}

func TestMatch(t *testing.T) {
	tests := []struct {
		paths, exclude []string
		path           string
		want           string // captures, "-" for no match
	}{
		{[]string{"/in/*.csv"}, nil, "/in/a.csv", "map[]"},
		{[]string{"/in/*.csv"}, nil, "/in/x/a.csv", "-"},
		{[]string{"/in/**/*.csv"}, nil, "/in/a.csv", "map[]"},
		{[]string{"/in/**"}, nil, "/in/x/y/a.csv", "map[]"},
		{[]string{"/in/**/{name}.csv"}, nil, "/in/x/y/a.csv", "map[name:a]"},
		{[]string{"/in/**/{name}.csv"}, nil, "/in/a.csv", "map[name:a]"},
		{[]string{"/in/{who}/{what}-{n}.[ct]sv"}, nil, "/in/acme/order-7.tsv", "map[n:7 what:order who:acme]"},
		{[]string{"/in/{who}/**"}, nil, "/in/acme/x/y", "map[who:acme]"},
		{[]string{"/in/{a,b}/{n}.{csv,txt}"}, nil, "/in/b/1.txt", "map[n:1]"},
		{[]string{"/in/{a,b}/{n}.{csv,txt}"}, nil, "/in/c/1.txt", "-"},
		{[]string{"/in/{n}.csv"}, nil, "/in/.csv", "-"},
		{[]string{"/in/{x}+(1)?.csv"}, nil, "/in/a+(1)b.csv", "map[x:a]"},
		{[]string{"/in/[!a]{n}"}, nil, "/in/bc", "map[n:c]"},
		{[]string{"/in/*.csv", "/in/{n}.csv"}, nil, "/in/a.csv", "map[]"},
		{[]string{"/in/*"}, []string{"*.bak"}, "/in/a.bak", "-"},
		{[]string{"/in/**"}, []string{"**/skip/**"}, "/in/x/skip/y/a", "-"},
		{[]string{"/in/**"}, []string{"/in/x/*"}, "/in/x/a", "-"},
		{[]string{"/in/*"}, nil, "/in/a~", "-"},
		{[]string{"/in/*"}, nil, "/in/.a.swp", "-"},
		{[]string{"/in/*"}, nil, "/in/.#a", "-"},
		{[]string{"/in/*"}, nil, "/in/#a#", "-"},
		{[]string{"/in/*"}, nil, "/in/.swp", "map[]"},
		{[]string{"/in/*"}, nil, "/in/.hidden", "map[]"},
	}
	for _, tt := range tests {
		ps, err := compileAll(tt.paths, tt.exclude)
		if err != nil {
			t.Errorf("%q: %v", tt.paths, err)
			continue
		}
		got := "-"
		if captured, ok := ps.match(tt.path); ok {
			got = fmt.Sprint(captured)
		}
		if got != tt.want {
			t.Errorf("%q without %q on %s: %s, want %s", tt.paths, tt.exclude, tt.path, got, tt.want)
		}
	}
}

func TestWatchedFolders(t *testing.T) {
	ps, err := compileAll([]string{"/flat/*.csv", "/two/*/*.csv", "/deep/**/*.csv"}, []string{"**/node_modules/**"})
	try(t, err)
	for dir, want := range map[string]bool{
		"/flat": true, "/flat/x": false, "/two": true, "/two/x": true, "/two/x/y": false, "/deep/a/b/c": true,
		"/deep/node_modules": false, "/deep/..data": false, "/deeper": false, "/": false,
	} {
		if got := ps.wants(filepath.FromSlash(dir)); got != want {
			t.Errorf("wants(%s) = %v", dir, got)
		}
	}
}

func TestFencedGapEndsRun(t *testing.T) {
	b := setup(t, nil)
	b.mem.SetCursor(triggerd.Cursor("?"))
	b.mem.Fence()
	src, err := New(b.o)
	try(t, err)
	if err := src.Run(t.Context(), b.mem.Runtime()); !errors.Is(err, triggerd.ErrFenced) {
		t.Errorf("Run: %v", err)
	}
}
