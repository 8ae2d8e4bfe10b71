package bustest

import (
	"net"
	"sync"
	"testing"
)

// Link is the network between a client and a server: what is sent over it can be held back, as while a process is frozen, or its connections be lost.
type Link struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu    sync.Mutex
	wait  *sync.Cond // for held or conns to change
	held  bool
	conns map[net.Conn]bool // both sides
}

// NewLink makes a link to an address, open until the test ends.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &Link{listener: l, target: target, conns: map[net.Conn]bool{}}
	k.wait = sync.NewCond(&k.mu)
	k.all.Go(k.accept)
	t.Cleanup(func() {
		_ = l.Close()
		k.Release()
		k.Lose()
		k.all.Wait()
	})
	return k
}

// URL is where a NATS client connects to.
func (k *Link) URL() string { return "nats://" + k.listener.Addr().String() }

// Hold keeps back what is sent in both directions, and who connects, until Release or Lose.
func (k *Link) Hold() { k.set(true) }

// Release delivers what was held back.
func (k *Link) Release() { k.set(false) }

func (k *Link) set(held bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = held
	k.wait.Broadcast()
}

// Lose closes all connections; what was held back is lost. New ones are let through.
func (k *Link) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
	clear(k.conns)
	k.held = false
	k.wait.Broadcast()
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", k.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		k.mu.Lock()
		k.conns[c], k.conns[s] = true, true
		k.mu.Unlock()
		k.all.Go(func() { k.pass(c, s) })
		k.all.Go(func() { k.pass(s, c) })
	}
}

// pass copies until one side is closed.
func (k *Link) pass(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		k.mu.Lock()
		for k.held && k.conns[from] {
			k.wait.Wait()
		}
		lost := !k.conns[from]
		k.mu.Unlock()
		if lost {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
