package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestConsumerOpensInOrder(t *testing.T) {
	b := bustest.Open(t)
	r := newRecorder()
	appendMany(t, b, "github", 1000)
	mustAppend(t, b, testEvent("gitlab", "of another connection"), bus.Fence{})
	c := start(t, b, "github", 1, r)
	r.await(t, 1000)
	large := testEvent("github", "large")
	large.Payload = bytes.Repeat([]byte("x"), 1<<20)
	last := mustAppend(t, b, large, bus.Fence{})
	r.await(t, 1001)
	if err := c.stop(); err != nil {
		t.Fatalf("run: %v", err)
	}
	if got := r.ids(); !slices.Equal(got, append(ns(1000), "large")) {
		t.Fatalf("%d events, out of order", len(got))
	}
	all := r.openings()
	if len(all) != 1001 {
		t.Errorf("%d openings, want 1001", len(all))
	}
	if o := all[0]; o.Blob != "" || string(o.Event.Payload) != `{"id":"n0"}` || o.Event.Seq != 1 {
		t.Errorf("opening: %+v", o)
	}
	if o := all[1000]; o.Blob == "" || !bytes.Equal(o.Event.Payload, large.Payload) || o.Event.Seq != last.Seq {
		t.Errorf("opening of a large event: blob %q, %d bytes", o.Blob, len(o.Event.Payload))
	}
	if c.Handled() != last.Seq || c.Pending() != 0 {
		t.Errorf("handled %d of %d, %d wait", c.Handled(), last.Seq, c.Pending())
	}
}

func TestConsumerAcknowledgesAfterOpening(t *testing.T) {
	b := bustest.Open(t)
	r := newRecorder()
	entered, release := make(chan struct{}), make(chan struct{})
	r.hook = func(context.Context, int) error {
		entered <- struct{}{}
		<-release
		return nil
	}
	appendMany(t, b, "github", 1)
	c := start(t, b, "github", 1, r)
	<-entered
	if floor := floorOf(t, b, "github"); floor != 0 || c.Handled() != 0 {
		t.Fatalf("acknowledged up to %d, handled up to %d, before the turn is open", floor, c.Handled())
	}
	close(release)
	eventually(t, "the event is acknowledged", func() bool { return floorOf(t, b, "github") == 1 })
	if c.Handled() != 1 {
		t.Fatalf("handled up to %d", c.Handled())
	}
}

func TestRestartResumesWithNothingLost(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	r := newRecorder()
	first := start(t, b, "github", 1, r)
	appendMany(t, b, "github", 100)
	r.await(t, 100)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, b, testEvent("github", "while nobody reads"), bus.Fence{})
	// This one opens its turns and dies before it acknowledges.
	dies := newRecorder()
	dying, die := context.WithCancel(bustest.Context(t))
	dies.hook = func(context.Context, int) error { return nil }
	second := &Consumer{Bus: b, Connection: "github", Epoch: "2", Log: zerolog.Nop(), Decider: func(uint64) (Decider, error) { return turnFor{}, nil }}
	second.Opener = openThen{dies, func() { die() }}
	if err := second.Run(dying); err != nil {
		t.Fatal(err)
	}
	b.Close()

	b = bustest.Open(t, bustest.Store(dir))
	mustAppend(t, b, testEvent("github", "after the restart"), bus.Fence{})
	third := newRecorder()
	start(t, b, "github", 3, third)
	third.awaitID(t, "after the restart")
	if got := third.ids(); !slices.Equal(got[len(got)-2:], []string{"while nobody reads", "after the restart"}) {
		t.Fatalf("opened after the restart: %v", got)
	}
	// What was acknowledged may come back, too: the acknowledgement is not synced. Nothing else may.
	if repeats := len(third.ids()) - 2; repeats > 100 {
		t.Fatalf("%d repeats", repeats)
	} else {
		t.Logf("%d of 101 events were opened again after the restart", repeats+1)
	}
	if n := len(readersOf(t, b, "github")); n != 1 {
		t.Fatalf("%d readers are left, want the present one", n)
	}
}

// openThen is an Opener that does something when the turns are open, before its caller knows.
type openThen struct {
	Opener
	then func()
}

func (o openThen) Open(ctx context.Context, os []triggerd.Opening) error {
	if err := o.Opener.Open(ctx, os); err != nil {
		return err
	}
	o.then()
	return ctx.Err()
}

// A stop between two events of a batch must not count the later ones as handled.
func TestStopInTheMiddleOfABatchLosesNothing(t *testing.T) {
	b := bustest.Open(t)
	appendMany(t, b, "github", 50)
	ctx, stop := context.WithCancel(bustest.Context(t))
	c := &Consumer{Bus: b, Connection: "github", Epoch: "1", Opener: newRecorder(), Log: zerolog.Nop(), Decider: func(seq uint64) (Decider, error) {
		return decide(func(ev *triggerd.Event) []triggerd.Opening {
			if ev.ID == "n10" {
				stop()
			}
			return nil // nothing to open, so nothing else would notice the stop
		}), nil
	}}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if c.Handled() > 11 {
		t.Fatalf("handled up to %d, decided up to 11", c.Handled())
	}
	left := ns(50)[c.Handled():]
	r := newRecorder()
	start(t, b, "github", 2, r)
	eventually(t, "the last event has opened its turns", func() bool { return slices.Contains(r.ids(), "n49") })
	// The acknowledgement of earlier ones may have been overtaken: they come again, which is harmless.
	if got := r.ids(); len(got) < len(left) || !slices.Equal(got, ns(50)[50-len(got):]) {
		t.Fatalf("opened %v, want at least %v", got, left)
	}
}

// A delivery can get lost, with a connection for example. The acknowledgement of a later event stands for all before it, so that must be noticed.
func TestALostDeliveryIsReadAgain(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	r := newRecorder()
	start(t, b, "github", 1, r)
	eventually(t, "the reader waits for events", func() bool { return len(readersOf(t, b, "github")) == 1 })
	thief, err := b.Events.Consumer(ctx, reader{epoch: 1, start: 1}.name("github"))
	if err != nil {
		t.Fatal(err)
	}
	stolen := make(chan string, 1)
	go func() {
		batch, err := thief.Fetch(1, jetstream.FetchMaxWait(20*time.Second))
		if err != nil {
			stolen <- err.Error()
			return
		}
		for m := range batch.Messages() {
			stolen <- m.Headers().Get(headerID)
			return
		}
		stolen <- "nothing"
	}()
	eventually(t, "the thief waits, too", func() bool {
		info, err := thief.Info(ctx)
		return err == nil && info.NumWaiting == 2
	})
	appendMany(t, b, "github", 20)
	id := <-stolen
	if !slices.Contains(ns(20), id) {
		t.Fatalf("stolen: %s", id)
	}
	r.await(t, 20)
	if got := r.ids(); !slices.Equal(got, ns(20)) {
		t.Fatalf("opened %v; %s was stolen", got, id)
	}
}

func TestWhatCannotBeReadStepsAside(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	mustAppend(t, b, testEvent("github", "before"), bus.Fence{})
	junk := nats.NewMsg(b.Names.Event("github", "0", "junk"))
	junk.Data = []byte("junk")
	if _, err := b.Publish(ctx, junk); err != nil {
		t.Fatal(err)
	}
	noBlob := testEvent("github", "without its blob")
	m, err := Encode(b.Names, &noBlob)
	if err != nil {
		t.Fatal(err)
	}
	m.Data = nil
	m.Header.Set(bus.HeaderBlob, "gone")
	m.Header.Set(headerSize, "10")
	if _, err := b.Publish(ctx, m); err != nil {
		t.Fatal(err)
	}
	last := mustAppend(t, b, testEvent("github", "after"), bus.Fence{})
	r := newRecorder()
	var logged bytes.Buffer
	c := start(t, b, "github", 1, r, func(c *Consumer) { c.Log = zerolog.New(&logged) })
	r.await(t, 2)
	eventually(t, "all is acknowledged", func() bool { return floorOf(t, b, "github") == last.Seq })
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.ids(); !slices.Equal(got, []string{"before", "after"}) {
		t.Fatalf("opened: %v", got)
	}
	if n := bytes.Count(logged.Bytes(), []byte("cannot be read")); n != 2 || bytes.Contains(logged.Bytes(), []byte("junk\"")) {
		t.Fatalf("%d lines about unreadable events, want 2:\n%s", n, &logged)
	}
}

func TestOpenerErrors(t *testing.T) {
	t.Parallel() // it waits more than it works
	t.Run("a newer owner ends the run", func(t *testing.T) {
		b := bustest.Open(t)
		appendMany(t, b, "github", 1)
		r := newRecorder()
		r.hook = func(context.Context, int) error { return fmt.Errorf("open: %w", triggerd.ErrFenced) }
		c := &Consumer{Bus: b, Connection: "github", Epoch: "1", Opener: r, Log: zerolog.Nop(), Decider: func(uint64) (Decider, error) { return turnFor{}, nil }}
		if err := c.Run(bustest.Context(t)); !errors.Is(err, triggerd.ErrFenced) {
			t.Fatalf("run: %v", err)
		}
		if floor := floorOf(t, b, "github"); floor != 0 {
			t.Fatalf("acknowledged up to %d", floor)
		}
	})
	t.Run("anything else is tried again", func(t *testing.T) {
		b := bustest.Open(t)
		appendMany(t, b, "github", 10)
		r := newRecorder()
		r.hook = func(_ context.Context, call int) error {
			if call <= 2 {
				return errors.New("the store does not answer")
			}
			return nil
		}
		start(t, b, "github", 1, r)
		r.await(t, 10)
		if got := r.ids(); !slices.Equal(got, ns(10)) {
			t.Fatalf("opened: %v", got)
		}
	})
	t.Run("a decider that is not there yet is waited for", func(t *testing.T) {
		b := bustest.Open(t)
		appendMany(t, b, "github", 3)
		r := newRecorder()
		tries := 0
		start(t, b, "github", 1, r, func(c *Consumer) {
			c.Decider = func(seq uint64) (Decider, error) {
				if tries++; tries <= 2 {
					return nil, errors.New("the definitions cannot be read")
				}
				return turnFor{}, nil
			}
		})
		r.await(t, 3)
	})
	t.Run("a stuck one ends with the context", func(t *testing.T) {
		b := bustest.Open(t)
		appendMany(t, b, "github", 2000) // more than is read ahead: the reader is blocked, too
		r := newRecorder()
		entered := make(chan struct{}, 1)
		r.hook = func(ctx context.Context, _ int) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		c := start(t, b, "github", 1, r)
		<-entered
		began := time.Now()
		if err := c.stop(); err != nil {
			t.Fatalf("run: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("the stop took %v", took)
		}
		if c.Handled() != 0 {
			t.Fatalf("handled up to %d", c.Handled())
		}
	})
}

func TestLargeEventsAreOpenedInPortions(t *testing.T) {
	b := bustest.Open(t)
	for i := range 3 {
		ev := testEvent("github", fmt.Sprint("n", i))
		ev.Payload = make([]byte, batchBytes/2)
		mustAppend(t, b, ev, bus.Fence{})
	}
	var most int64
	r := newRecorder()
	start(t, b, "github", 1, openSizes{r, func(n int64) { most = max(most, n) }})
	r.await(t, 3)
	if most > batchBytes {
		t.Fatalf("%d bytes were opened at once, the bound is %d", most, batchBytes)
	}
	if got := r.ids(); !slices.Equal(got, ns(3)) {
		t.Fatalf("opened: %v", got)
	}
}

type openSizes struct {
	*recorder
	saw func(int64)
}

func (o openSizes) Open(ctx context.Context, os []triggerd.Opening) error {
	n := int64(0)
	for i := range os {
		n += os[i].Event.Size()
		ev := *os[i].Event
		ev.Payload = nil // the test keeps what it has seen
		os[i].Event = &ev
	}
	o.saw(n)
	return o.recorder.Open(ctx, os)
}
