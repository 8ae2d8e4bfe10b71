package files

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is an upstream in which the thing that happens is a new file.
type folder struct{ dir string }

func (u *folder) Source(t *testing.T) sources.Source {
	t.Helper()
	s, err := New(Options{Paths: []string{u.dir + "/**/*.txt"}, Settle: 30 * time.Millisecond, MaxRead: 100})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (u *folder) Happen(t *testing.T, n int) {
	t.Helper()
	write(t, filepath.Join(u.dir, fmt.Sprintf("%d.txt", n)), fmt.Sprint(n))
}

func (u *folder) Number(ev triggerd.Event) int {
	var p Payload
	var n int
	_ = json.Unmarshal(ev.Payload, &p) // 0 is no number
	_, _ = fmt.Sscanf(p.Name, "%d.txt", &n)
	return n
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, sourcetest.Harness{
		New:         func(t *testing.T) sourcetest.Upstream { return &folder{t.TempDir()} },
		FirstCursor: true,
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a source that watches dir for real, with a short settle time.
type bench struct {
	t      *testing.T
	dir    string
	o      Options
	mem    *sourcetest.Memory
	status *sources.Status
	stop   func()
}

func setup(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), mem: sourcetest.NewMemory("drop")}
	b.o = Options{Paths: []string{b.dir + "/**/*.txt"}, Settle: 50 * time.Millisecond, MaxRead: 1000}
	if change != nil {
		change(&b.o)
	}
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// start runs the source and returns when it watches.
func (b *bench) start() *bench {
	b.t.Helper()
	src, err := New(b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	rt := b.mem.Runtime()
	b.status = rt.Status
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- src.Run(ctx, rt) }()
	b.stop = func() {
		b.stop = func() {}
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}
	b.t.Cleanup(func() { b.stop() })
	// The position that the first scan stores.
	b.within(func(ctx context.Context) error { return b.mem.WaitNewCursor(ctx, rt.Cursor) })
	return b
}

func (b *bench) within(wait func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := wait(ctx); err != nil {
		b.t.Fatalf("%v; stored %v", err, b.seen())
	}
}

// barrier waits until everything that happened before it was dealt with: a file that is made now settles after it.
func (b *bench) barrier() {
	b.t.Helper()
	write(b.t, b.path("barrier.txt"), "x")
	b.within(func(ctx context.Context) error {
		return b.mem.WaitUntil(ctx, "the barrier", func(evs []triggerd.Event) bool {
			return slices.ContainsFunc(evs, func(ev triggerd.Event) bool { return payload(b.t, ev).Name == "barrier.txt" })
		})
	})
}

func payload(t *testing.T, ev triggerd.Event) Payload {
	t.Helper()
	var p Payload
	if err := json.Unmarshal(ev.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// seen are the stored events as "type name", without the barrier.
func (b *bench) seen() []string {
	b.t.Helper()
	out := []string{}
	for _, ev := range b.mem.Events() {
		if ev.Type == sources.GapType {
			out = append(out, "gap")
			continue
		}
		if p := payload(b.t, ev); p.Name != "barrier.txt" {
			rel, _ := filepath.Rel(b.dir, p.Path)
			out = append(out, strings.TrimPrefix(ev.Type, "file.")+" "+rel)
		}
	}
	return out
}

func (b *bench) want(want ...string) {
	b.t.Helper()
	b.barrier()
	if got := b.seen(); !slices.Equal(got, append([]string{}, want...)) {
		b.t.Fatalf("stored %q, want %q", got, want)
	}
}

// last is the payload of the newest event that is not the barrier.
func (b *bench) last() Payload {
	b.t.Helper()
	var last Payload
	for _, ev := range b.mem.Events() {
		if p := payload(b.t, ev); p.Name != "barrier.txt" {
			last = p
		}
	}
	return last
}

func TestOneEventPerSettledChange(t *testing.T) {
	tests := []struct {
		name string
		have map[string]string // before the first start
		do   func(*bench)
		want []string
		text string // the content in the last event
	}{
		{"a new file", nil, func(b *bench) { write(b.t, b.path("a.txt"), "1") }, []string{"created a.txt"}, "1"},
		{"an empty file", nil, func(b *bench) { write(b.t, b.path("a.txt"), "") }, []string{"created a.txt"}, ""},
		{"written in two steps", nil, func(b *bench) {
			write(b.t, b.path("a.txt"), "1")
			write(b.t, b.path("a.txt"), "two")
		}, []string{"created a.txt"}, "two"},
		{"truncated and written", map[string]string{"a.txt": "old"}, func(b *bench) {
			try(b.t, os.Truncate(b.path("a.txt"), 0))
			write(b.t, b.path("a.txt"), "new text")
		}, []string{"changed a.txt"}, "new text"},
		{"a temporary file that is renamed over it", map[string]string{"a.txt": "old"}, func(b *bench) {
			write(b.t, b.path("a.txt.tmp"), "by rename")
			try(b.t, os.Rename(b.path("a.txt.tmp"), b.path("a.txt")))
		}, []string{"changed a.txt"}, "by rename"},
		{"a matching temporary name", nil, func(b *bench) {
			write(b.t, b.path("part.txt"), "whole")
			try(b.t, os.Rename(b.path("part.txt"), b.path("a.txt")))
		}, []string{"created a.txt"}, "whole"},
		{"as vim does", map[string]string{"a.txt": "old"}, func(b *bench) {
			write(b.t, b.path(".a.txt.swp"), "swap")
			write(b.t, b.path("4913"), "")
			try(b.t, os.Remove(b.path("4913")))
			try(b.t, os.Rename(b.path("a.txt"), b.path("a.txt~")))
			write(b.t, b.path("a.txt"), "from vim")
			try(b.t, os.Remove(b.path("a.txt~")))
		}, []string{"changed a.txt"}, "from vim"},
		{"gone before it settled", nil, func(b *bench) {
			write(b.t, b.path("a.txt"), "1")
			try(b.t, os.Remove(b.path("a.txt")))
		}, nil, ""},
		{"a change of mode only", map[string]string{"a.txt": "old"}, func(b *bench) { try(b.t, os.Chmod(b.path("a.txt"), 0o644)) }, nil, ""},
		{"what does not match", nil, func(b *bench) { write(b.t, b.path("a.csv"), "1") }, nil, ""},
		{"folders made in one go", nil, func(b *bench) {
			try(b.t, os.MkdirAll(b.path("x/y/z"), 0o700))
			write(b.t, b.path("x/y/z/a.txt"), "deep")
		}, []string{"created x/y/z/a.txt"}, "deep"},
		{"a folder that is moved in", nil, func(b *bench) {
			out := b.t.TempDir()
			write(b.t, filepath.Join(out, "a.txt"), "moved")
			try(b.t, os.Rename(out, b.path("in")))
		}, []string{"created in/a.txt"}, "moved"},
		{"a folder that is renamed", map[string]string{"one/a.txt": "same"}, func(b *bench) {
			try(b.t, os.Rename(b.path("one"), b.path("two")))
		}, []string{"created two/a.txt"}, "same"},
		{"a link to a file", nil, func(b *bench) {
			target := filepath.Join(b.t.TempDir(), "target")
			write(b.t, target, "linked")
			try(b.t, os.Symlink(target, b.path("a.txt")))
		}, []string{"created a.txt"}, "linked"},
		{"a link to a folder", nil, func(b *bench) {
			out := b.t.TempDir()
			write(b.t, filepath.Join(out, "a.txt"), "1")
			try(b.t, os.Symlink(out, b.path("link")))
		}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, nil)
			for name, content := range tt.have {
				try(t, os.MkdirAll(filepath.Dir(b.path(name)), 0o700))
				write(t, b.path(name), content)
			}
			b.start()
			tt.do(b)
			b.want(tt.want...)
			if p := b.last(); len(tt.want) > 0 && (p.Content == nil || *p.Content != tt.text) {
				t.Errorf("content in %+v, want %q", p, tt.text)
			}
		})
	}
}
