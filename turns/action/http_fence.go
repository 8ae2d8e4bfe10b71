package action

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// fencePause is how often a write that must wait asks again.
const fencePause = 10 * time.Millisecond

// fence makes connections write only while alive is true. A process that was frozen goes on in the middle of whatever it did, and what it did last may
// have been to send a request for a turn that another daemon runs by now.
func fence(tr *http.Transport, alive func() bool) {
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &fencedConn{Conn: c, alive: alive, closed: make(chan struct{})}, nil
	}
}

type fencedConn struct {
	net.Conn
	alive  func() bool
	once   sync.Once
	closed chan struct{}
}

// Close implements [net.Conn]; it ends a write that waits.
func (c *fencedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Write implements [net.Conn]. It blocks while the daemon may be no owner any more: that ends with a renewal, or with the end of the attempt.
func (c *fencedConn) Write(p []byte) (int, error) {
	for !c.alive() {
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		case <-time.After(fencePause):
		}
	}
	return c.Conn.Write(p)
}
