//go:build unix && !linux

package console

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// listenPrivate binds inside a folder that only this user may enter, sets the mode there, and then moves the socket to its place.
func listenPrivate(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tmp := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it would unlink the name that it was bound to
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &movedListener{UnixListener: ln, path: path}, nil
}

// movedListener removes the name that the socket was moved to.
type movedListener struct {
	*net.UnixListener
	path string
}

func (l *movedListener) Close() error {
	err := l.UnixListener.Close()
	if err == nil {
		_ = os.Remove(l.path)
	}
	return err
}
