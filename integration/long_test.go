package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/console"
)

// consumers asks the server itself for the state of the stream's consumers.
func consumers(t *testing.T, s *natsServer, stream string) []*jetstream.ConsumerInfo {
	t.Helper()
	nc, err := nats.Connect(s.url(), s.opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	var out []*jetstream.ConsumerInfo
	list := st.ListConsumers(t.Context())
	for c := range list.Info() {
		out = append(out, c)
	}
	if list.Err() != nil || len(out) == 0 {
		t.Fatalf("stream %s has %d consumers, %v", stream, len(out), list.Err())
	}
	return out
}

// P5: a long turn occupies no delivery. While it runs, everything is acknowledged, so no ack wait can run out, however long it takes;
// with one slot, the twenty events behind it are open as queued turns, and none of them runs.
func TestLongTurn(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	release, held := w.hold(t, "long")
	server := newNATS(t, nil)
	in := newInstallation(t, "  url: "+server.url(), oneHook(w))
	in.configure("server:\n", "server:\n  concurrency: 1\n")
	in.run()
	accepted := []string{"long"}
	in.mustPost("in", "long", []byte("long"))
	arrives(t, held)
	for n := range 20 {
		id := fmt.Sprint("e", n)
		in.mustPost("in", id, []byte("short"))
		accepted = append(accepted, id)
	}
	in.awaitTurns("work", "one runs, twenty are queued", 10*time.Second, func(ts []console.TurnInfo) bool {
		return count(ts, "running") == 1 && count(ts, "queued") == 20
	})
	long := time.Now()
	shortest := time.Hour
	await(t, "the turn has run for 3 s", 10*time.Second, func() bool {
		if n := len(w.all()); n != 0 || len(held) != 0 {
			t.Fatalf("%d effects and %d calls beside the long turn, with one slot", n, len(held))
		}
		for _, c := range consumers(t, server, "triggerd_EVENTS") {
			if c.NumRedelivered != 0 {
				t.Fatalf("consumer %s: %d deliveries were repeated", c.Name, c.NumRedelivered)
			}
			shortest = min(shortest, c.Config.AckWait)
		}
		return time.Since(long) > 3*time.Second
	})
	for _, c := range consumers(t, server, "triggerd_EVENTS") {
		if c.NumAckPending != 0 || c.NumPending != 0 {
			t.Errorf("consumer %s: %d deliveries wait for their acknowledgement and %d events for delivery while the turn runs", c.Name, c.NumAckPending, c.NumPending)
		}
	}
	for _, s := range in.client().Ready(t.Context()).Sources {
		if s.Pending != 0 {
			t.Errorf("connection %s has %d events pending", s.Connection, s.Pending)
		}
	}
	release()
	if repeats := everyOneDone(in, w, accepted); repeats != 0 {
		t.Errorf("%d effects were repeated", repeats)
	}
	es := w.all()
	slices.SortFunc(es, func(a, b effect) int { return a.begin.Compare(b.begin) })
	for n := 1; n < len(es); n++ {
		if es[n].begin.Before(es[n-1].end) {
			t.Errorf("effect %d began before the one before it had ended, with one slot", n)
		}
	}
	t.Logf("a turn of %s, 20 queued behind it: nothing unacknowledged (ack wait %s), nothing redelivered, %d effects one at a time",
		es[0].end.Sub(es[0].begin), shortest, len(es))
}
