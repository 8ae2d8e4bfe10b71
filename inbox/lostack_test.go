package inbox

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// lossyProxy stands between a bus and its server and can keep the server's answers to itself.
type lossyProxy struct {
	url      string
	listener net.Listener
	server   string
	deaf     atomic.Bool // answers are thrown away

	mu    sync.Mutex
	conns []net.Conn
	busy  sync.WaitGroup
}

func newLossyProxy(t *testing.T, serverURL string) *lossyProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{url: "nats://" + l.Addr().String(), listener: l, server: strings.TrimPrefix(serverURL, "nats://")}
	p.busy.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.busy.Wait()
	})
	return p
}

func (p *lossyProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.busy.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		p.busy.Go(func() { _, _ = io.Copy(unlessDeaf{client, &p.deaf}, server); _ = client.Close() })
	}
}

type unlessDeaf struct {
	io.Writer
	deaf *atomic.Bool
}

func (w unlessDeaf) Write(b []byte) (int, error) {
	if w.deaf.Load() {
		return len(b), nil
	}
	return w.Writer.Write(b)
}

// cut ends all connections.
func (p *lossyProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func TestALostAnswerIsNotADuplicate(t *testing.T) {
	srv := bustest.Server(t, t.TempDir(), 0)
	direct := bustest.External(t, srv.ClientURL())
	proxy := newLossyProxy(t, srv.ClientURL())
	b := bustest.External(t, proxy.url)
	a := NewAppender(b)
	for id, fence := range map[string]bus.Fence{"without a fence": {}, "with a fence": acquire(t, b, "github")} {
		t.Run(id, func(t *testing.T) {
			type result struct {
				triggerd.Receipt
				error
			}
			before := lastSeq(t, direct)
			proxy.deaf.Store(true)
			done := make(chan result, 1)
			go func() {
				r, err := a.Append(bustest.Context(t), testEvent("github", id), fence)
				done <- result{r, err}
			}()
			eventually(t, "the event is stored", func() bool { return lastSeq(t, direct) == before+1 })
			proxy.deaf.Store(false)
			proxy.cut()
			if got := <-done; got != (result{triggerd.Receipt{Seq: before + 1}, nil}) {
				t.Errorf("append: %+v", got)
			}
			if now := lastSeq(t, direct); now != before+1 {
				t.Errorf("%d messages were stored for one event", now-before)
			}
		})
	}
}

func lastSeq(t *testing.T, b *bus.Bus) uint64 {
	t.Helper()
	info, err := b.Events.Info(bustest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}
