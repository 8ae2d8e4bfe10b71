//go:build linux

package bus_test

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func putBlob(t *testing.T, b *bus.Bus, size int) (string, []byte) {
	t.Helper()
	data := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(data)
	name, err := b.PutBlob(bustest.Context(t), data)
	if err != nil {
		t.Fatal(err)
	}
	return name, data
}

// stored is how many messages the bucket holds: an entry and its pieces for each blob.
func stored(t *testing.T, b *bus.Bus) uint64 {
	t.Helper()
	s, err := b.JS.Stream(bustest.Context(t), "OBJ_"+b.Names.Blobs())
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestBlobsComeBackByteForByte(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	ctx := bustest.Context(t)
	blobs := map[string][]byte{}
	for _, size := range []int{0, 1, 128 << 10, 1<<20 + 1, 8 << 20} {
		name, data := putBlob(t, b, size)
		blobs[name] = data
	}
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	for name, data := range blobs {
		if got, err := b.GetBlob(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("a blob of %d bytes came back with %d: %v", len(data), len(got), err)
		}
	}
	if _, err := b.GetBlob(ctx, "nothing"); !errors.Is(err, triggerd.ErrNotFound) {
		t.Errorf("a blob that is not there: %v", err)
	}
}

func TestDropBlobLeavesNothing(t *testing.T) {
	b := bustest.Open(t)
	name, _ := putBlob(t, b, 300<<10)
	b.DropBlob(bustest.Context(t), name)
	b.DropBlob(bustest.Context(t), name)
	if _, err := b.GetBlob(bustest.Context(t), name); !errors.Is(err, triggerd.ErrNotFound) {
		t.Errorf("a dropped blob: %v", err)
	}
	if n := stored(t, b); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

func TestSweepDeletesWhatNothingNames(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	names := func(list string) func(*nats.Msg) { return func(m *nats.Msg) { m.Header.Set(bus.HeaderBlob, list) } }
	byEvent, _ := putBlob(t, b, 10)
	byTurn, _ := putBlob(t, b, 20)
	byTurnToo, _ := putBlob(t, b, 30)
	byThread, _ := putBlob(t, b, 40)
	byNobody, _ := putBlob(t, b, 300<<10)
	byRefused, _ := putBlob(t, b, 50)
	mustPublish(t, b, b.Names.Event("github", "0", "a"), names(byEvent))
	mustPublish(t, b, b.Names.Turn("default", "1", "a"), names(byTurn+","+byTurnToo))
	mustPublish(t, b, "triggerd.thread.a", names(byThread))
	if _, err := publish(t, b, b.Names.Event("github", "0", "a"), names(byRefused)); !errors.Is(err, bus.ErrExists) {
		t.Fatal(err)
	}
	all := stored(t, b)

	t.Run("not the young ones", func(t *testing.T) {
		res, err := b.SweepBlobs(ctx, time.Hour)
		if err != nil || res != (bus.Sweep{Blobs: 6}) || stored(t, b) != all {
			t.Fatalf("sweep: %+v, %v", res, err)
		}
	})
	t.Run("the old ones, and not the named ones", func(t *testing.T) {
		res, err := b.SweepBlobs(ctx, 0)
		if err != nil || res != (bus.Sweep{Blobs: 6, Deleted: 2}) {
			t.Fatalf("sweep: %+v, %v", res, err)
		}
		for _, name := range []string{byEvent, byTurn, byTurnToo, byThread} {
			if _, err := b.GetBlob(ctx, name); err != nil {
				t.Errorf("a blob that is in use: %v", err)
			}
		}
		for _, name := range []string{byNobody, byRefused} {
			if _, err := b.GetBlob(ctx, name); !errors.Is(err, triggerd.ErrNotFound) {
				t.Errorf("a blob that nothing names: %v", err)
			}
		}
		if n := stored(t, b); n != 8 { // four entries of one piece each
			t.Errorf("%d messages are left, want 8", n)
		}
	})
	t.Run("again without effect", func(t *testing.T) {
		if res, err := b.SweepBlobs(ctx, 0); err != nil || res != (bus.Sweep{Blobs: 4}) {
			t.Fatalf("sweep: %+v, %v", res, err)
		}
	})
	t.Run("when the message goes, its blob goes", func(t *testing.T) {
		if err := b.Turns.Purge(ctx); err != nil {
			t.Fatal(err)
		}
		if res, err := b.SweepBlobs(ctx, 0); err != nil || res != (bus.Sweep{Blobs: 4, Deleted: 2}) {
			t.Fatalf("sweep: %+v, %v", res, err)
		}
	})
}

func TestSweepRemovesLeftoversOfCrashes(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	kept, _ := putBlob(t, b, 10)
	mustPublish(t, b, b.Names.Event("github", "0", "a"), func(m *nats.Msg) { m.Header.Set(bus.HeaderBlob, kept) })
	// A crash while a blob is written leaves pieces without an entry.
	bucket := "$O." + b.Names.Blobs()
	for range 3 {
		if _, err := b.JS.Publish(ctx, bucket+".C.CRASHED", []byte("piece")); err != nil {
			t.Fatal(err)
		}
	}
	// The bucket's own delete leaves a marker.
	store, err := b.JS.ObjectStore(ctx, b.Names.Blobs())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, jetstream.ObjectMeta{Name: "deleted"}, bytes.NewReader([]byte("data"))); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	if res, err := b.SweepBlobs(ctx, time.Hour); err != nil || res != (bus.Sweep{Blobs: 1}) {
		t.Fatalf("sweep of young leftovers: %+v, %v", res, err)
	}
	if res, err := b.SweepBlobs(ctx, 0); err != nil || res != (bus.Sweep{Blobs: 1, Orphans: 2}) {
		t.Fatalf("sweep: %+v, %v", res, err)
	}
	if n := stored(t, b); n != 2 {
		t.Fatalf("%d messages are left, want those of the blob in use", n)
	}
	if _, err := b.GetBlob(ctx, kept); err != nil {
		t.Fatal(err)
	}
}
