package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// groupSyncSupported reports whether this system can sync a whole file system and report the errors of it.
const groupSyncSupported = true

// syncFileSystem blocks until the dirty pages and the metadata of the file system that holds f are on the device.
// Since Linux 5.8 syncfs(2) reports write-back errors.
func syncFileSystem(f *os.File) error {
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncfs: %w", err)
	}
	return nil
}

// dropCache makes the kernel forget the clean pages of all files below dir, so that the next read comes from the device.
func dropCache(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the store back from the device: %w", err)
	}
	return nil
}

// freeBytes is what an unprivileged process may still write to the file system that holds dir, and the size of that file system.
func freeBytes(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("read free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// isFull reports whether the file system that holds dir has no room for the bytes or the files of a new store.
func isFull(dir string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return err == nil && (int64(st.Bavail)*st.Bsize < minToStart || st.Files > 0 && st.Ffree < filesToStart)
}
