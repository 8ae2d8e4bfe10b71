package daemon

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// external opens n connections to one NATS server of its own.
func external(t *testing.T, n int) []*bus.Bus {
	t.Helper()
	srv, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	out := make([]*bus.Bus, n)
	for i := range out {
		if out[i], err = bus.Open(t.Context(), bus.Options{Prefix: "triggerd", External: &bus.ExternalOptions{URLs: []string{srv.ClientURL()}}, Log: zerolog.Nop()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(out[i].Close)
	}
	return out
}
