package bus

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// storeLock is the ownership of a store folder: it ends with the process, however that ends.
type storeLock struct{ f *os.File }

func lockStore(dir string) (*storeLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, storeError("open the lock of the store folder", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 64))
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s belongs to process %s: stop that one, or give this one its own nats.embedded.store",
				ErrLocked, dir, cmp.Or(strings.TrimSpace(string(holder)), "(unknown)"))
		}
		return nil, fmt.Errorf("lock the store folder: %w", err)
	}
	// The pid is for people; the lock itself is what counts. A full disk must not stop us here.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return &storeLock{f: f}, nil
}

func (l *storeLock) release() { _ = l.f.Close() }

// storeError says what an operator can do about a store folder that cannot be used.
func storeError(what, dir string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%s: %w: %w: free some space or move nats.embedded.store (%s)", what, ErrDiskFull, err, dir)
	}
	return fmt.Errorf("%s: %w (set nats.embedded.store to a folder that this user may write)", what, err)
}
