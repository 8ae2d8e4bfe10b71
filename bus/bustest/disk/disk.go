//go:build linux

// Package disk mounts small file systems for tests: full ones, read-only ones, and ones whose device can be copied at any moment,
// as a power loss would leave it. It needs root.
package disk

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Tmpfs mounts an empty file system of the given size in memory until the test ends, and returns its folder.
// options are further ones of tmpfs(5).
func Tmpfs(t testing.TB, size int64, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	options = append(options, fmt.Sprintf("size=%d,mode=0755", size))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(options, ",")); err != nil {
		t.Fatalf("mount tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// ReadOnly makes a mounted folder read-only.
func ReadOnly(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("remount read-only: %v", err)
	}
}

// Fill leaves about the given number of bytes free in dir and returns a function that frees the space again.
func Fill(t testing.TB, dir string, leave int64) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatalf("fill disk: %v", err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatalf("fill disk: %v", err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, max(int64(st.Bavail)*st.Bsize-leave, 1)); err != nil {
		t.Fatalf("fill disk: %v", err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Errorf("free disk: %v", err)
		}
	}
}

// Device is an ext4 file system in a file: the file holds what the file system has given to its device, and nothing that waits in memory.
type Device struct {
	Dir   string // where it is mounted
	image string
}

// Ext4 makes a device of the given size and mounts it until the test ends.
func Ext4(t testing.TB, size int64) *Device {
	t.Helper()
	image := filepath.Join(t.TempDir(), "device.img")
	f, err := os.Create(image)
	if err != nil {
		t.Fatalf("make device: %v", err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatalf("make device: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatalf("make device: %v", err)
	}
	run(t, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
	return mount(t, image)
}

// mount keeps the file system's own timers out of the way: it writes when it is told to sync, not because seconds have passed.
func mount(t testing.TB, image string) *Device {
	t.Helper()
	dir := t.TempDir()
	run(t, "mount", "-o", "loop,commit=3600", image, dir)
	t.Cleanup(func() { unmount(t, dir) })
	return &Device{Dir: dir, image: image}
}

// PowerLoss copies what the device holds now and mounts the copy, which replays its journal as after a power loss. Nothing may be syncing meanwhile.
func (d *Device) PowerLoss(t testing.TB) *Device {
	t.Helper()
	from, err := os.Open(d.image)
	if err != nil {
		t.Fatalf("copy device: %v", err)
	}
	defer func() { _ = from.Close() }()
	image := filepath.Join(t.TempDir(), "after.img")
	to, err := os.Create(image)
	if err != nil {
		t.Fatalf("copy device: %v", err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatalf("copy device: %v", err)
	}
	if err := to.Close(); err != nil {
		t.Fatalf("copy device: %v", err)
	}
	return mount(t, image)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s (this test needs root and a loop device): %v\n%s", name, err, out)
	}
}

func unmount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}
