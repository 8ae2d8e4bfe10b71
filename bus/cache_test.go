//go:build linux

package bus

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// After a failed sync the kernel may keep pages in memory that are not on the device; a server that is started then must not see them.
func TestDropCacheMakesReadsComeFromTheDevice(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "block")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, path); n == 0 {
		t.Fatal("the file is not in the cache before: the test shows nothing")
	}
	if err := dropCache(dir); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, path); n != 0 {
		t.Fatalf("%d pages are still in the cache", n)
	}
}

// resident counts the pages of a file that are in memory.
func resident(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	pages := make([]byte, (len(data)+os.Getpagesize()-1)/os.Getpagesize())
	if err := mincore(data, pages); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}
