package console

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/triggerd/triggerd"
)

// MaxSocketPath is the longest path of a unix socket, in bytes: sockaddr_un has 108 with the final NUL (unix(7)).
const MaxSocketPath = 107

// ErrSocketInUse: something answers at the socket's path, most likely another daemon.
var ErrSocketInUse = errors.New("something listens there already")

// checkSocketPath reports why path cannot be a socket's.
func checkSocketPath(path string) error {
	switch {
	case path == "":
		return errors.New("the path of the admin socket is empty (use unix:<path>)")
	case strings.ContainsRune(path, 0):
		return errors.New("the path of the admin socket holds a NUL byte")
	case len(path) > MaxSocketPath:
		return fmt.Errorf("the path of the admin socket has %d bytes, the limit is %d: %s (set server.admin.listen to a shorter unix:<path>)", len(path), MaxSocketPath, path)
	}
	return nil
}

// SocketPath is where the admin socket belongs. The daemon and the commands both ask here, so that they agree.
//
// listen is `server.admin.listen`: "unix:<path>", or "" for the default, <store>/admin.sock. Where that is longer than
// [MaxSocketPath], or there is no store (store is "", with an external NATS server), it is
// $XDG_RUNTIME_DIR/triggerd/<hash>.sock, the hash being of the store's absolute path, or of the working directory.
// A path that was written out is used as it is, or refused.
func SocketPath(listen, store string) (string, error) {
	if listen != "" {
		path, ok := strings.CutPrefix(listen, "unix:")
		if !ok {
			return "", fmt.Errorf("server.admin.listen is %q: use unix:<path>", listen)
		}
		return path, checkSocketPath(path)
	}
	abs, err := filepath.Abs(store)
	if err != nil {
		return "", fmt.Errorf("find the admin socket: %w", err)
	}
	if path := filepath.Join(abs, "admin.sock"); store != "" && len(path) <= MaxSocketPath {
		return path, nil
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		return "", fmt.Errorf("no place for the admin socket: the path in the store would be longer than %d bytes or there is no store, and XDG_RUNTIME_DIR is not set (set server.admin.listen to unix:<path>)", MaxSocketPath)
	}
	path := filepath.Join(runtime, "triggerd", triggerd.HashID(abs)+".sock")
	return path, checkSocketPath(path)
}

// ListenUnix listens on a unix socket at path that only this user can connect to, from the moment it exists.
// A missing folder is made, with mode 0700. Closing the listener removes the socket.
//
// A socket that is there already is removed only if connecting to it is refused, which is how a dead process leaves it;
// [ErrSocketInUse] says that somebody answers. Anything that is not a socket is left alone. Two processes that start on
// the same path at once are told apart by the lock on the store, not here.
func ListenUnix(path string) (net.Listener, error) {
	if err := checkSocketPath(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the admin socket's folder: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	return ln, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the admin socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("the admin socket's path %s is taken by something that is not a socket; it is left alone", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("admin socket %s: %w", path, ErrSocketInUse)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		// For example EACCES, or EAGAIN of a listener with a full queue: nothing says that it is dead.
		return fmt.Errorf("cannot tell whether admin socket %s is in use; it is left alone: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stale admin socket: %w", err)
	}
	return nil
}
