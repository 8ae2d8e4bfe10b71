//go:build linux

package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// scan returns the sequences and bodies that a scan meets.
func scan(t *testing.T, b *bus.Bus, o bus.ScanOptions) (seqs []uint64, bodies []string) {
	t.Helper()
	err := b.Scan(bustest.Context(t), b.Names.Turns(), o, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		seqs, bodies = append(seqs, meta.Sequence.Stream), append(bodies, string(m.Data()))
		return nil
	})
	if err != nil {
		t.Fatalf("scan %+v: %v", o, err)
	}
	return seqs, bodies
}

func TestScan(t *testing.T) {
	b := bustest.Open(t)
	if seqs, _ := scan(t, b, bus.ScanOptions{}); seqs != nil {
		t.Fatalf("an empty stream: %v", seqs)
	}
	turn := func(hash string) string { return b.Names.Turn("default", "1", hash) }
	for i, hash := range []string{"a", "b", "a", "c", "b", "a"} {
		mustPublish(t, b, turn(hash), func(m *nats.Msg) { m.Data = fmt.Appendf(nil, "%s%d", hash, i) })
	}
	for name, tc := range map[string]struct {
		o      bus.ScanOptions
		seqs   []uint64
		bodies []string
	}{
		"everything":                 {bus.ScanOptions{}, []uint64{1, 2, 3, 4, 5, 6}, []string{"a0", "b1", "a2", "c3", "b4", "a5"}},
		"from a sequence on":         {bus.ScanOptions{From: 5}, []uint64{5, 6}, []string{"b4", "a5"}},
		"from behind the end":        {bus.ScanOptions{From: 7}, nil, nil},
		"one subject":                {bus.ScanOptions{Filter: turn("b")}, []uint64{2, 5}, []string{"b1", "b4"}},
		"one subject that is empty":  {bus.ScanOptions{Filter: turn("z")}, nil, nil},
		"the newest of each":         {bus.ScanOptions{LastOnly: true}, []uint64{4, 5, 6}, []string{"c3", "b4", "a5"}},
		"the newest of one, no body": {bus.ScanOptions{LastOnly: true, HeadersOnly: true, Filter: turn("b")}, []uint64{5}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			seqs, bodies := scan(t, b, tc.o)
			if !slices.Equal(seqs, tc.seqs) || !slices.Equal(bodies, tc.bodies) {
				t.Fatalf("got %v %v, want %v %v", seqs, bodies, tc.seqs, tc.bodies)
			}
		})
	}
	t.Run("leaves no consumer behind", func(t *testing.T) {
		names := b.Turns.ConsumerNames(bustest.Context(t))
		for n := range names.Name() {
			t.Errorf("consumer %s", n)
		}
	})
}

func TestScanEnds(t *testing.T) {
	t.Parallel() // it waits more than it works
	setup := func(t *testing.T) (*bus.Bus, context.Context) {
		b := bustest.Open(t)
		for i := range 3 {
			mustPublish(t, b, b.Names.Turn("default", "1", fmt.Sprint(i)))
		}
		return b, bustest.Context(t)
	}
	t.Run("with the error of its function", func(t *testing.T) {
		b, ctx := setup(t)
		stop := errors.New("stop")
		if err := b.Scan(ctx, b.Names.Turns(), bus.ScanOptions{}, func(jetstream.Msg) error { return stop }); !errors.Is(err, stop) {
			t.Fatalf("scan: %v", err)
		}
	})
	t.Run("when what it waits for is purged", func(t *testing.T) {
		b, ctx := setup(t)
		calls := 0
		// Longer than what is read ahead, so that the end is not in memory yet when it goes.
		var last *bus.Pending
		for i := range 3000 {
			last = b.PublishAsync(nats.NewMsg(b.Names.Turn("default", "2", fmt.Sprint(i))))
		}
		if _, err := last.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		err := b.Scan(ctx, b.Names.Turns(), bus.ScanOptions{}, func(jetstream.Msg) error {
			if calls++; calls == 1 {
				return b.Turns.Purge(ctx)
			}
			return nil
		})
		if err != nil || calls == 3003 {
			t.Fatalf("scan: %v after %d messages", err, calls)
		}
	})
	t.Run("with its context", func(t *testing.T) {
		b, ctx := setup(t)
		ctx, cancel := context.WithCancel(ctx)
		err := b.Scan(ctx, b.Names.Turns(), bus.ScanOptions{}, func(jetstream.Msg) error {
			cancel()
			return b.Turns.Purge(bustest.Context(t))
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("scan: %v", err)
		}
	})
	t.Run("when there is no such stream", func(t *testing.T) {
		b, ctx := setup(t)
		if err := b.Scan(ctx, "nothing", bus.ScanOptions{}, nil); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatalf("scan: %v", err)
		}
	})
}

func TestReadsOfOneMessage(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	mustPublish(t, b, b.Names.Turn("default", "1", "a"))
	newest := mustPublish(t, b, b.Names.Turn("default", "2", "a"), func(m *nats.Msg) { m.Header.Set("k", "v") })
	if m, err := b.Last(ctx, b.Turns, b.Names.TurnAnywhere("a")); err != nil || m.Sequence != newest || m.Header.Get("k") != "v" {
		t.Fatalf("last: %+v, %v", m, err)
	}
	if m, err := b.Last(ctx, b.Turns, b.Names.TurnAnywhere("b")); err != nil || m != nil {
		t.Fatalf("last of nothing: %+v, %v", m, err)
	}
	if m, err := b.At(ctx, b.Turns, newest); err != nil || string(m.Data) != "payload" {
		t.Fatalf("at: %+v, %v", m, err)
	}
	if _, err := b.At(ctx, b.Turns, newest+1); !errors.Is(err, triggerd.ErrNotFound) {
		t.Fatalf("at nothing: %v", err)
	}
}
