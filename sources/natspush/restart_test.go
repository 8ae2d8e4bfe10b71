package natspush

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

// startServer runs a NATS server on a store and blocks until it takes connections.
func startServer(t *testing.T, store string, port int) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{JetStream: true, StoreDir: store, Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return srv
}

// The server goes away under a source that runs, and comes back on the same store.
func TestServerRestart(t *testing.T) {
	store := t.TempDir()
	srv := startServer(t, store, server.RANDOM_PORT)
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	back := make(chan struct{}, 1)
	nc, err := nats.Connect(srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "PUSH", Subjects: []string{"p.push.c.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	u := &upstream{t: t, o: Options{JS: js, NC: nc, Stream: "PUSH", Durable: "push", Prefix: "p.push.c.", SubmitPrefix: "p.submit.c."}}
	publish := func(n int) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), message(u.o.Prefix+"x", string(rune('a'+n)), nil)); err != nil {
			t.Fatal(err)
		}
	}

	mem := sourcetest.NewMemory("c")
	status := new(sources.Status)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- sources.Supervise(ctx, New(u.o), func(context.Context) (sources.Runtime, error) { return mem.Runtime(), nil },
			sources.BackoffOptions{Initial: 20 * time.Millisecond, Max: 20 * time.Millisecond, Status: status})
	}()
	r := &running{t: t, mem: mem, status: status}
	for n := range 5 {
		publish(n)
	}
	r.events(5)

	port := srv.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	srv.Shutdown()
	srv.WaitForShutdown()
	srv = startServer(t, store, int(port))
	<-back
	for n := 5; n < 10; n++ {
		publish(n)
	}
	for i, ev := range r.events(10) {
		if string(ev.Payload) != string(rune('a'+i)) {
			t.Errorf("event %d is %q", i, ev.Payload)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Supervise returned %v", err)
	}
	if status.Snapshot().Restarts == 0 {
		t.Error("the source did not notice that the server was away")
	}
}
