package bus_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// reader follows some subjects in a test.
type reader struct {
	*testing.T
	b    *bus.Bus
	got  chan string
	stop context.CancelFunc
	done chan error
}

func follow(t *testing.T, b *bus.Bus, from uint64, filters ...string) *reader {
	t.Helper()
	ctx, stop := context.WithCancel(bustest.Context(t))
	r := &reader{T: t, b: b, got: make(chan string, 10_000), stop: stop, done: make(chan error, 1)}
	go func() {
		r.done <- b.Follow(ctx, b.Names.Turns(), filters, from, func(m jetstream.Msg) error {
			if string(m.Data()) == "bad" {
				return errBad
			}
			r.got <- string(m.Data())
			return nil
		})
	}()
	t.Cleanup(stop)
	return r
}

var errBad = errors.New("bad")

// want checks what comes next: numbers from up to to.
func (r *reader) want(from, to int) {
	r.Helper()
	for i := from; i <= to; i++ {
		select {
		case s := <-r.got:
			if s != strconv.Itoa(i) {
				r.Fatalf("got %s, want %d", s, i)
			}
		case <-time.After(30 * time.Second):
			r.Fatalf("waited for %d", i)
		}
	}
}

func (r *reader) ended() error {
	r.Helper()
	r.stop()
	select {
	case err := <-r.done:
		return err
	case <-time.After(5 * time.Second):
		r.Fatal("Follow does not return")
		return nil
	}
}

func put(t *testing.T, b *bus.Bus, part string, from, to int) (last uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		m := nats.NewMsg(b.Names.Turn("default", part, "h"+strconv.Itoa(i)))
		m.Data = []byte(strconv.Itoa(i))
		var err error
		if last, err = b.Publish(bustest.Context(t), m); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

func consumers(t *testing.T, b *bus.Bus) []string {
	t.Helper()
	var names []string
	l := b.Turns.ConsumerNames(bustest.Context(t))
	for n := range l.Name() {
		names = append(names, n)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	return names
}

// What is there and what comes is read in order, from where it was asked for, and of the subjects asked for.
func TestFollow(t *testing.T) {
	b := bustest.Open(t)
	put(t, b, "1", 1, 3)
	put(t, b, "2", 100, 103)
	from := put(t, b, "1", 4, 4)
	put(t, b, "3", 5, 600)
	r := follow(t, b, from, b.Names.TurnsOf("default.1"), b.Names.TurnsOf("default.3"))
	r.want(4, 600)
	put(t, b, "2", 100, 100)
	put(t, b, "1", 601, 610)
	r.want(601, 610)
	if err := r.ended(); err != nil {
		t.Errorf("its end: %v", err)
	}
	if left := consumers(t, b); len(left) > 0 {
		t.Errorf("consumers %v are left", left)
	}
	m := nats.NewMsg(b.Names.Turn("default", "1", "bad"))
	m.Data = []byte("bad")
	if _, err := b.Publish(bustest.Context(t), m); err != nil {
		t.Fatal(err)
	}
	r = follow(t, b, 0, b.Names.TurnsOf("default.1"))
	r.want(1, 4)
	r.want(601, 610)
	select {
	case err := <-r.done:
		if !errors.Is(err, errBad) {
			t.Errorf("its end: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Follow does not return")
	}
}

// A reader whose consumer is gone is made again, and nothing is left out or comes twice.
func TestFollowGoesOnWithoutItsConsumer(t *testing.T) {
	b := bustest.Open(t)
	r := follow(t, b, 0, b.Names.TurnsOf("default.1"))
	put(t, b, "1", 1, 1)
	r.want(1, 1)
	for _, name := range consumers(t, b) {
		if err := b.Turns.DeleteConsumer(bustest.Context(t), name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, b, "1", 2, 5)
	r.want(2, 5)
	if err := r.ended(); err != nil {
		t.Errorf("its end: %v", err)
	}
}

// A message that the server has sent and that does not come is read all the same when the next one comes.
func TestFollowMissesWhatIsLost(t *testing.T) {
	b := bustest.Open(t)
	r := follow(t, b, 0, b.Names.TurnsOf("default.1"))
	put(t, b, "1", 1, 1)
	r.want(1, 1)
	steal(t, b, func() { put(t, b, "1", 2, 4) }) // requests take turns
	r.want(2, 4)
}

// steal takes a message away from the only consumer there is.
func steal(t *testing.T, b *bus.Bus, put func()) {
	t.Helper()
	c, err := b.Turns.Consumer(bustest.Context(t), consumers(t, b)[0])
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for { // the server has the request
		info, err := c.Info(bustest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if info.NumWaiting >= 2 {
			break
		}
	}
	put()
	if m := <-batch.Messages(); m == nil {
		t.Fatalf("nothing to take away: %v", batch.Error())
	}
}

// What was on its way when the connection was lost is read at once when it is back, though nothing comes after it.
func TestFollowLosesNothingWithItsConnection(t *testing.T) {
	srv := bustest.Server(t, t.TempDir(), 0)
	link := bustest.NewLink(t, srv.Addr().String())
	far, near := bustest.External(t, link.URL()), bustest.External(t, srv.ClientURL())
	r := follow(t, far, 0, far.Names.TurnsOf("default.1"))
	put(t, near, "1", 1, 1)
	r.want(1, 1)
	for i := 2; i < 6; i++ {
		link.Hold()
		for seq := put(t, near, "1", i, i); !onItsWay(t, near, seq); {
			continue
		}
		link.Lose()
		r.want(i, i)
	}
	if err := r.ended(); err != nil {
		t.Errorf("its end: %v", err)
	}
}

// onItsWay reports whether the server has sent a message to a reader.
func onItsWay(t *testing.T, b *bus.Bus, seq uint64) bool {
	t.Helper()
	l := b.Turns.ListConsumers(bustest.Context(t))
	sent := false
	for info := range l.Info() {
		sent = sent || info.Delivered.Stream >= seq
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	return sent
}

// The end of the context ends a reader whose server does not answer.
func TestFollowEndsWithoutItsServer(t *testing.T) {
	srv := bustest.Server(t, t.TempDir(), 0)
	link := bustest.NewLink(t, srv.Addr().String())
	b := bustest.External(t, link.URL())
	lost := b.NC.StatusChanged(nats.RECONNECTING)
	defer b.NC.RemoveStatusListener(lost)
	r := follow(t, b, 0, b.Names.TurnsOf("default.1"))
	put(t, b, "1", 1, 1)
	r.want(1, 1)
	srv.Shutdown()
	srv.WaitForShutdown()
	select {
	case <-lost:
	case <-time.After(30 * time.Second):
		t.Fatal("the connection is not lost")
	}
	if err := r.ended(); err != nil {
		t.Errorf("its end: %v", err)
	}
}
