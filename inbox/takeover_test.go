package inbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestANewOwnerStartsAfterTheOldOnesFloor(t *testing.T) {
	b := bustest.Open(t)
	r1 := newRecorder()
	old := start(t, b, "github", 9, r1)
	appendMany(t, b, "github", 20)
	r1.await(t, 20)
	eventually(t, "all is acknowledged", func() bool { return floorOf(t, b, "github") == 20 })
	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	r2 := newRecorder()
	fresh := start(t, b, "github", 10, r2) // a later number, though not as text
	mustAppend(t, b, testEvent("github", "new"), bus.Fence{})
	r2.await(t, 1)
	if got := r2.ids(); !slices.Equal(got, []string{"new"}) {
		t.Fatalf("opened: %v", got)
	}
	if fresh.Handled() < 20 {
		t.Fatalf("handled up to %d", fresh.Handled())
	}
	found := readersOf(t, b, "github")
	if info := found[reader{epoch: 10, start: 1}]; len(found) != 1 || info == nil || info.Config.OptStartSeq != 21 {
		t.Fatalf("readers: %+v", found)
	}
}

func TestAFormerOwnerThatThawsIsFenced(t *testing.T) {
	b := bustest.Open(t)
	appendMany(t, b, "github", 10)
	frozen := newRecorder()
	entered, thaw := make(chan struct{}), make(chan struct{})
	frozen.hook = func(_ context.Context, call int) error {
		if call == 1 {
			close(entered)
			<-thaw
		}
		return nil
	}
	old := &Consumer{Bus: b, Connection: "github", Epoch: "1", Opener: frozen, Log: zerolog.Nop(), Decider: func(uint64) (Decider, error) { return turnFor{}, nil }}
	done := make(chan error, 1)
	go func() { done <- old.Run(bustest.Context(t)) }()
	<-entered

	r := newRecorder()
	fresh := start(t, b, "github", 2, r)
	r.await(t, 10)
	if got := r.ids(); !slices.Equal(got, ns(10)) {
		t.Fatalf("the new owner opened %v", got)
	}
	close(thaw)
	if err := <-done; !errors.Is(err, triggerd.ErrFenced) {
		t.Fatalf("the former owner: %v", err)
	}
	// It has not taken the connection back.
	mustAppend(t, b, testEvent("github", "new"), bus.Fence{})
	r.await(t, 11)
	if found := readersOf(t, b, "github"); len(found) != 1 || found[reader{epoch: 2, start: 1}] == nil {
		t.Fatalf("readers: %+v", found)
	}
	if err := fresh.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestConnectionsWithLikeNamesDoNotDisturbEachOther(t *testing.T) {
	b := bustest.Open(t)
	connections := []string{"a", "a-b", "a-b-c", "a_b", "ab"}
	recorders := map[string]*recorder{}
	for epoch := 1; epoch <= 3; epoch++ {
		for _, c := range connections {
			r := newRecorder()
			recorders[c] = r
			run := start(t, b, c, epoch, r)
			mustAppend(t, b, testEvent(c, c+strings.Repeat("!", epoch)), bus.Fence{})
			r.await(t, 1)
			if epoch < 3 {
				eventually(t, "it is acknowledged", func() bool { return run.Handled() > 0 && floorOf(t, b, c) == run.Handled() })
				if err := run.stop(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for c, r := range recorders {
		if got := r.ids(); !slices.Equal(got, []string{c + "!!!"}) {
			t.Errorf("%s opened %v", c, got)
		}
		if found := readersOf(t, b, c); len(found) != 1 {
			t.Errorf("%s has readers %+v", c, found)
		}
	}
}

func TestReaderNames(t *testing.T) {
	for _, r := range []reader{{1, 1}, {18446744073709551615, 42}} {
		if got, ok := parseReader("a-b", r.name("a-b")); !ok || got != r {
			t.Errorf("%s: %+v, %v", r.name("a-b"), got, ok)
		}
		if _, ok := parseReader("a", r.name("a-b")); ok {
			t.Errorf("%s is taken for a's", r.name("a-b"))
		}
	}
	for _, n := range []string{"", "inbox=a=", "inbox=a=1", "inbox=a=x=1", "inbox=a=1=x", "push", "inbox=a=1=1=1"} {
		if r, ok := parseReader("a", n); ok {
			t.Errorf("%q is read as %+v", n, r)
		}
	}
	c := &Consumer{Bus: bustest.Open(t), Connection: "a", Epoch: "first"}
	if _, err := c.takeOver(bustest.Context(t)); err == nil {
		t.Error("an epoch that is no number was accepted")
	}
}
