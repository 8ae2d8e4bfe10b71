package integration

import (
	"net"
	"sync"
	"testing"
)

// proxy is the network between one daemon and a NATS server. It can be cut and restored at any time.
type proxy struct {
	addr   string
	target string
	l      net.Listener

	mu    sync.Mutex
	state proxyState
	wake  *sync.Cond // of mu; told when state changes
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

type proxyState int

const (
	proxyOpen    proxyState = iota
	proxyStalled            // nothing arrives on either side, as when a cable is out: bytes wait, nobody is told
	proxySevered            // connections are closed and new ones are closed at once, as when a firewall resets them
	proxyEnded
)

// newProxy passes everything on to target until it is told otherwise.
func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, l: l, conns: map[net.Conn]bool{}}
	p.wake = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "nats://" + p.addr }

// stall keeps connections open and lets nothing through. What was sent meanwhile arrives after restore, late, as TCP makes it.
func (p *proxy) stall() { p.set(proxyStalled) }

// sever closes all connections on both sides, and every new one.
func (p *proxy) sever() { p.set(proxySevered) }

// restore lets everything through again.
func (p *proxy) restore() { p.set(proxyOpen) }

func (p *proxy) close() {
	_ = p.l.Close()
	p.set(proxyEnded)
	p.wg.Wait()
}

func (p *proxy) set(s proxyState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
	if s == proxySevered || s == proxyEnded {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.wake.Broadcast()
}

// passes blocks while the network is stalled, and reports whether it carries anything now.
func (p *proxy) passes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.state == proxyStalled {
		p.wake.Wait()
	}
	return p.state == proxyOpen
}

// keep registers a connection to be closed by sever; false when it is closed already, because the network is severed.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == proxySevered || p.state == proxyEnded {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.carry(c) })
	}
}

// carry connects one client to the target, for as long as both live.
func (p *proxy) carry(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) || !p.passes() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(server, client) })
	p.copy(client, server)
	wg.Wait()
}

// copy ends both connections when either of them ends.
func (p *proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.passes() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
