package inbox

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/cursor"
)

// putLeak: the object store's Put (nats.go 1.55.0) leaves this goroutine behind, one in some thousand times, when it ends before the goroutine
// has looked at its channel.
var putLeak = goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, putLeak) }

// testEvent is a small event of a connection.
func testEvent(connection, id string) triggerd.Event {
	at := time.Date(2026, 3, 29, 1, 30, 0, 123456789, time.UTC)
	return triggerd.Event{
		Connection: connection, Subscription: triggerd.DefaultSubscription, ID: id, Type: "order.created", Time: at, Received: at,
		ContentType: "application/json", Payload: []byte(`{"id":"` + id + `"}`),
	}
}

func mustAppend(t testing.TB, b *bus.Bus, ev triggerd.Event, fence bus.Fence) triggerd.Receipt {
	t.Helper()
	r, err := NewAppender(b).Append(bustest.Context(t), ev, fence)
	if err != nil {
		t.Fatalf("append %s: %v", ev.ID, err)
	}
	return r
}

// appendMany appends n events of a connection in order: "n0", "n1"...
func appendMany(t testing.TB, b *bus.Bus, connection string, n int) {
	t.Helper()
	page := make([]triggerd.Event, n)
	for i := range page {
		page[i] = testEvent(connection, fmt.Sprint("n", i))
	}
	if _, err := NewAppender(b).AppendPage(bustest.Context(t), page, nil, nil, bus.Fence{}); err != nil {
		t.Fatal(err)
	}
}

func acquire(t testing.TB, b *bus.Bus, connection string) bus.Fence {
	t.Helper()
	f, err := cursor.Acquire(bustest.Context(t), b, connection, cursor.Owner{Daemon: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// eventually asks until ok says yes, for what nothing signals.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("in vain: %s", what)
		}
	}
}
