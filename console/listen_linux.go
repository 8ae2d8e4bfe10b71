package console

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenPrivate gives the socket mode 0600 before it has a name: Linux makes the file with the mode of the unbound socket.
// A chmod afterwards would leave a moment in which others can connect, and the umask belongs to the whole process.
func listenPrivate(path string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	return lc.Listen(context.Background(), "unix", path)
}
