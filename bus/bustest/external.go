package bustest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/bus"
)

// Server runs a plain NATS server on dir until the test ends, as an operator would. Port 0 is a free one.
func Server(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatalf("set up NATS server: %v", err)
	}
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return srv
}

// External opens a bus on a server of somebody else's and closes it when the test ends.
func External(t testing.TB, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Open(Context(t), bus.Options{Prefix: Prefix, Log: zerolog.Nop(), External: &bus.ExternalOptions{URLs: []string{url}}})
	if err != nil {
		t.Fatalf("open bus: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}
