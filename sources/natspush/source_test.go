package natspush

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. It is long, because it ends only tests that fail.
const patience = 30 * time.Second

// upstream is a real NATS server with the stream of the connection "orders" on it.
type upstream struct {
	t   *testing.T
	bus *bus.Bus
	o   Options
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{
		Prefix:   "triggerd",
		Embedded: &bus.EmbeddedOptions{Store: t.TempDir(), Sync: bus.SyncInterval, Listen: "127.0.0.1:0", Reserve: 1, MaxPayload: 24 << 20},
		Log:      zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if _, err := b.EnsurePush(t.Context(), "orders", 1<<30); err != nil {
		t.Fatal(err)
	}
	return &upstream{t, b, Options{
		JS: b.JS, NC: b.NC, Stream: b.Names.Push("orders"), Durable: "push",
		Prefix: "triggerd.push.orders.", SubmitPrefix: "triggerd.submit.orders.",
	}}
}

func (u *upstream) Source(*testing.T) sources.Source { return New(u.o) }

func (u *upstream) Happen(_ *testing.T, n int) { u.publish("order.created", strconv.Itoa(n)) }

func (u *upstream) Number(ev triggerd.Event) int {
	n, _ := strconv.Atoi(string(ev.Payload))
	return n
}

// publish sends a message with headers given as "Name: value" and waits until the stream has it.
func (u *upstream) publish(typ, data string, headers ...string) *jetstream.PubAck {
	u.t.Helper()
	ack, err := u.bus.JS.PublishMsg(context.Background(), message(u.o.Prefix+typ, data, headers))
	if err != nil {
		u.t.Fatal(err)
	}
	return ack
}

// publishAll sends n numbered messages as fast as the stream takes them.
func (u *upstream) publishAll(n int) {
	u.t.Helper()
	acks := make([]jetstream.PubAckFuture, n)
	for i := range n {
		var err error
		if acks[i], err = u.bus.JS.PublishMsgAsync(message(u.o.Prefix+"x", strconv.Itoa(i+1), nil)); err != nil {
			u.t.Fatal(err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			u.t.Fatal(err)
		}
	}
}

func message(subject, data string, headers []string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		m.Header[name] = append(m.Header[name], value)
	}
	return m
}

// left waits until the stream holds n messages: the server takes acknowledgements in without an answer.
func (u *upstream) left(n uint64) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		s, err := u.bus.JS.Stream(ctx, u.o.Stream)
		if err != nil {
			u.t.Fatalf("wait for %d messages in the stream: %v", n, err)
		}
		if s.CachedInfo().State.Msgs == n {
			return
		}
	}
}

// running is a source over a store in memory.
type running struct {
	t      *testing.T
	mem    *sourcetest.Memory
	status *sources.Status
	log    *bytes.Buffer
	cancel context.CancelFunc
	ended  chan error
}

// begin runs a source over mem until the test or [running.stop] ends it.
func (u *upstream) begin(mem *sourcetest.Memory) *running {
	u.t.Helper()
	r := &running{t: u.t, mem: mem, log: new(bytes.Buffer), ended: make(chan error, 1)}
	rt := mem.Runtime()
	r.status, rt.Log = rt.Status, zerolog.New(zerolog.SyncWriter(r.log))
	rt.Emit = sources.Observe(rt.Emit, rt.Status)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- New(u.o).Run(ctx, rt) }()
	u.t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
	r.ended <- nil
}

// events waits for n stored events and returns all.
func (r *running) events(n int) []triggerd.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.mem.Wait(ctx, n); err != nil {
		r.t.Fatalf("%v; status %+v", err, r.status.Snapshot())
	}
	return r.mem.Events()
}

func (r *running) calls(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.mem.WaitCalls(ctx, n); err != nil {
		r.t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, sourcetest.Harness{
		New:     func(t *testing.T) sourcetest.Upstream { return newUpstream(t) },
		Invalid: func(_ *testing.T, u sourcetest.Upstream) { u.(*upstream).publish("x", "bad", "ce-id: a\x01b") },
		// An acknowledgement has no answer, so a stop may overtake it.
		MayRepeat: true,
		Timeout:   patience,
	})
}

func TestPush(t *testing.T) {
	t.Run("a message without an id is named by its place and time", func(t *testing.T) {
		u := newUpstream(t)
		ack := u.publish("order.paid", "1")
		ev := u.begin(sourcetest.NewMemory("orders")).events(1)[0]
		stored, err := u.bus.JS.Stream(t.Context(), u.o.Stream)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d-%d", ack.Sequence, ev.Time.UnixNano())
		if ev.ID != want || ev.Type != "order.paid" || ev.Time.Before(stored.CachedInfo().Created) || time.Since(ev.Time) > time.Hour {
			t.Errorf("id %q (want %q), type %q, time %v", ev.ID, want, ev.Type, ev.Time)
		}
		u.left(0)
	})
	t.Run("the same id is one event", func(t *testing.T) {
		u := newUpstream(t)
		for _, id := range []string{"a", "a", "b", "a", "c", "d", "b"} {
			u.publish("x", id, "ce-id: "+id)
		}
		r := u.begin(sourcetest.NewMemory("orders"))
		u.left(0)
		var got []string
		for _, ev := range r.mem.Events() {
			got = append(got, ev.ID)
		}
		if !slices.Equal(got, []string{"a", "b", "c", "d"}) || len(r.mem.Duplicates()) != 3 {
			t.Errorf("stored %v, duplicates %v", got, r.mem.Duplicates())
		}
	})
	t.Run("payloads arrive byte for byte", func(t *testing.T) {
		u := newUpstream(t)
		// The last one is over what one pull may carry.
		payloads := []string{"", "\x00\xff\r\n", strings.Repeat("x", 1<<20), strings.Repeat("y", fetchBytes+1), "after"}
		for _, p := range payloads {
			u.publish("x", p)
		}
		for i, ev := range u.begin(sourcetest.NewMemory("orders")).events(len(payloads)) {
			if string(ev.Payload) != payloads[i] {
				t.Errorf("payload %d has %d bytes, sent %d", i, len(ev.Payload), len(payloads[i]))
			}
		}
		u.left(0)
	})
	t.Run("a message after an idle pull is taken in", func(t *testing.T) {
		u := newUpstream(t)
		r := u.begin(sourcetest.NewMemory("orders"))
		for n := 1; n <= 3; n++ {
			u.Happen(t, n)
			r.events(n)
			u.left(0)
		}
	})
}

func TestRefusedMessages(t *testing.T) {
	u, mem := newUpstream(t), sourcetest.NewMemory("orders")
	mem.LimitPayload(10)
	for n := 1; n <= 6; n++ {
		u.Happen(t, n)
	}
	u.publish("x", "private-too-large")
	u.publish("x", "private", "Triggerd-Hops: 9")
	u.publish("x", "private", "Triggerd-Hops: nine")
	u.publish("x", "private", "ce-id: \xff")
	u.publish("x", "private", "ce-type: "+strings.Repeat("x", 257))
	u.Happen(t, 7)
	r := u.begin(mem)
	evs := r.events(7)
	u.left(0)
	for i, ev := range evs {
		if u.Number(ev) != i+1 {
			t.Errorf("event %d is number %d", i, u.Number(ev))
		}
	}
	r.stop()
	if s := r.status.Snapshot(); s.Events != 7 || s.Rejected != 5 {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(r.log.String(), "refused") || strings.Contains(r.log.String(), "private") {
		t.Errorf("log %s", r.log)
	}
	if n := strings.Count(r.log.String(), "\n"); n > 3 {
		t.Errorf("%d lines for 3 causes", n)
	}
}

func TestOutage(t *testing.T) {
	t.Run("nothing is acknowledged before it is stored", func(t *testing.T) {
		u, mem := newUpstream(t), sourcetest.NewMemory("orders")
		mem.FailNext(1_000_000, triggerd.ErrUnavailable)
		r := u.begin(mem)
		u.publishAll(20)
		r.calls(3)
		u.left(20)
		if r.status.Snapshot().Error == "" {
			t.Error("the status does not show the outage")
		}
		mem.Heal()
		r.events(20)
		u.left(0)
		r.stop()
		if s := r.status.Snapshot(); s.Error != "" || s.Events != 20 {
			t.Errorf("status after the outage: %+v", s)
		}
	})
	t.Run("a deleted consumer ends Run, and the next one takes up where it was", func(t *testing.T) {
		u, mem := newUpstream(t), sourcetest.NewMemory("orders")
		r := u.begin(mem)
		u.Happen(t, 1)
		r.events(1)
		if err := u.bus.JS.DeleteConsumer(t.Context(), u.o.Stream, u.o.Durable); err != nil {
			t.Fatal(err)
		}
		err := <-r.ended
		r.ended <- nil
		if err == nil {
			t.Fatal("Run returned nil although nobody stopped it")
		}
		u.Happen(t, 2)
		u.begin(mem).events(2)
	})
	t.Run("a stream that is not there is an error", func(t *testing.T) {
		u := newUpstream(t)
		u.o.Stream = "triggerd_PUSH_nobody"
		if err := New(u.o).Run(t.Context(), sourcetest.NewMemory("orders").Runtime()); err == nil {
			t.Error("Run returned nil")
		}
	})
}

func TestOrder(t *testing.T) {
	inOrder := func(t *testing.T, u *upstream, evs []triggerd.Event, n int) {
		t.Helper()
		if len(evs) != n {
			t.Fatalf("%d events, want %d", len(evs), n)
		}
		for i, ev := range evs {
			if u.Number(ev) != i+1 {
				t.Fatalf("event %d is number %d", i+1, u.Number(ev))
			}
		}
	}
	t.Run("a backlog is taken in by pages", func(t *testing.T) {
		u := newUpstream(t)
		const n = 3000
		u.publishAll(n)
		r := u.begin(sourcetest.NewMemory("orders"))
		inOrder(t, u, r.events(n), n)
		u.left(0)
		if r.mem.Calls() > n/3 { // a busy machine makes small pages
			t.Errorf("%d appends for %d messages", r.mem.Calls(), n)
		}
	})
	t.Run("a run that ended in mid-page gives back what it held, before what is newer", func(t *testing.T) {
		u, mem := newUpstream(t), sourcetest.NewMemory("orders")
		u.publishAll(30)
		mem.FailNext(1_000_000, triggerd.ErrUnavailable)
		r := u.begin(mem)
		r.calls(2) // all 30 are with the client, none is stored
		r.stop()
		mem.Heal()
		for n := 31; n <= 40; n++ {
			u.Happen(t, n)
		}
		inOrder(t, u, u.begin(mem).events(40), 40)
		u.left(0)
	})
	t.Run("many restarts lose nothing and invert nothing", func(t *testing.T) {
		u, mem := newUpstream(t), sourcetest.NewMemory("orders")
		const n = 600
		for i := 1; i <= n; i++ {
			u.Happen(t, i)
			if i%60 == 0 {
				r := u.begin(mem)
				r.events(i - 50)
				r.stop()
			}
		}
		inOrder(t, u, u.begin(mem).events(n), n)
		u.left(0)
	})
}
