package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
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

func candidate(b *bus.Bus, id string, generation int) *lease {
	return newLease(b, id, func() int { return generation }, zerolog.Nop())
}

func mustTry(t *testing.T, l *lease, want bool) {
	t.Helper()
	if got, err := l.try(t.Context()); err != nil || got != want {
		t.Fatalf("%s owns: %v, %v; want %v", l.owner.Daemon, got, err, want)
	}
}

func TestLease(t *testing.T) {
	b := external(t, 2)
	one, two := candidate(b[0], "one", 1), candidate(b[1], "two", 1)
	mustTry(t, one, true)
	mustTry(t, two, false)
	if o := two.holder.Load(); o == nil || o.Daemon != "one" || o.Epoch != 1 {
		t.Fatalf("two knows of %+v", o)
	}
	won := make(chan error, 1)
	go func() { won <- two.await(t.Context()) }()
	if err := one.release(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := <-won; err != nil || two.epoch != 2 {
		t.Fatalf("two owns epoch %d, %v", two.epoch, err)
	}
	t.Logf("a released lease was taken in %v", time.Since(began))
	// The one that had it before learns so at its next renewal, whatever it believed.
	if err := one.keep(t.Context(), func(bool) bool { return true }); !errors.Is(err, triggerd.ErrFenced) {
		t.Fatalf("the former owner keeps it: %v", err)
	}
	if one.holder.Load().Daemon != "two" || !two.held() {
		t.Error("one does not know who has it now")
	}
	if err := one.release(); err != nil { // it must not take two's away
		t.Fatal(err)
	}
	mustTry(t, candidate(b[0], "three", 1), false)
}

func TestLeaseOfSilentOwner(t *testing.T) {
	t.Parallel() // it waits
	b := external(t, 2)
	one, two := candidate(b[0], "one", 0), candidate(b[1], "two", 0)
	mustTry(t, one, true)
	renewing, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- one.keep(renewing, func(bool) bool { return true }) }()
	// Longer than the silence that ends an ownership.
	patient, cancel := context.WithTimeout(t.Context(), leaseSilence+1500*time.Millisecond)
	defer cancel()
	if err := two.await(patient); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("two took it from an owner that lives: %v", err)
	}
	stop()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	silent := time.Now()
	if err := two.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(silent); took < leaseSilence-leaseEvery || took > leaseSilence+3*time.Second {
		t.Errorf("two took over after %v of silence", took)
	}
	if one.held() {
		t.Error("one still counts on it, although another has it")
	}
}

// An owner that is cut off ends its ownership by itself before another one can have it, unless it is alone.
func TestLeaseOfOwnerThatIsCutOff(t *testing.T) {
	t.Parallel() // it waits
	for name, peers := range map[string]bool{"with others": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := external(t, 1)[0]
			l := candidate(b, "one", 0)
			mustTry(t, l, true)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			kept := make(chan error, 1)
			go func() { kept <- l.keep(ctx, func(bool) bool { return peers }) }()
			for l.watched.Load() != peers || time.Since(l.base) < 3*leaseEvery { // it takes a moment to know that nobody else is there
				if !bus.Pause(ctx, leaseEvery/10) {
					t.Fatal("the test has ended")
				}
			}
			b.NC.Close()
			began := time.Now()
			time.AfterFunc(leaseSilence, stop)
			err := <-kept
			if l.alive() == peers {
				t.Errorf("what it runs may go on: %v", l.alive())
			}
			if errors.Is(err, triggerd.ErrFenced) != peers {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
}

func TestLeaseKeepsGeneration(t *testing.T) {
	b := external(t, 2)
	newer, older := candidate(b[0], "newer", 5), candidate(b[1], "older", 4)
	mustTry(t, newer, true)
	if err := newer.release(); err != nil {
		t.Fatal(err)
	}
	mustTry(t, older, false)
	if why := older.why(); why == "" {
		t.Error("it does not say why it does not take over")
	}
	older.version = func() int { return 5 }
	mustTry(t, older, true)
}
