//go:build linux

package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/bus/bustest/disk"
)

// The server is replaced under a running inbox: deliveries that were on their way are lost, events are not.
func TestNothingIsLostOnAFullDisk(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir := disk.Tmpfs(t, 64<<20)
	b := bustest.Open(t, bustest.Store(dir), bustest.Sync(bus.SyncGroup))
	a := NewAppender(b)
	r := newRecorder()
	c := start(t, b, "github", 1, r)
	var accepted []string
	offer := func(i int) error {
		ctx, cancel := context.WithTimeout(bustest.Context(t), bus.AppendTimeout)
		defer cancel()
		ev := testEvent("github", fmt.Sprint("n", i))
		ev.Payload = make([]byte, 200<<10)
		_, err := a.Append(ctx, ev, bus.Fence{})
		if err == nil {
			accepted = append(accepted, ev.ID)
		}
		return err
	}
	next := 0
	for ; next < 5; next++ {
		if err := offer(next); err != nil {
			t.Fatal(err)
		}
	}
	free := disk.Fill(t, dir, 2<<20)
	began := time.Now()
	var refusal error
	for ; refusal == nil; next++ {
		began = time.Now()
		refusal = offer(next)
	}
	if took := time.Since(began); !errors.Is(refusal, triggerd.ErrUnavailable) || took > bus.AppendTimeout+time.Second {
		t.Fatalf("refused after %v: %v", took, refusal)
	}
	eventually(t, "events are refused at once", func() bool { return b.AcceptsEvents() != nil })
	free()
	eventually(t, "the event that was refused is accepted", func() bool { return offer(next-1) == nil })
	for range 20 {
		if err := offer(next); err != nil {
			t.Fatal(err)
		}
		next++
	}
	r.await(t, len(accepted))
	if b.Restarts() == 0 {
		t.Error("the server was not replaced: the test shows nothing")
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.ids(); !slices.Equal(got, accepted) {
		t.Fatalf("opened %v\naccepted %v", got, accepted)
	}
	t.Logf("%d events accepted and opened in order, %d openings were repeats", len(accepted), len(r.openings())-len(accepted))
}
