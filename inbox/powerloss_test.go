//go:build linux

package inbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/bus/bustest/disk"
	"github.com/triggerd/triggerd/cursor"
)

// A power loss is shown as far as a test can: the store is on a file system of its own, whose device is a file. That file holds what was
// given to the device; what still waits in memory is not in it. A copy of it, mounted anew, is what a machine finds after the power is back.
// The copy is made while no append is under way, right after the last one has returned.

const deviceSize = 64 << 20

type poweredStore struct {
	*bus.Bus
	device   *disk.Device
	appender *Appender

	gate     sync.RWMutex // appends hold it shared, a power loss alone
	mu       sync.Mutex
	returned map[string]bool // ids of the appends that have returned
}

func openPowered(t *testing.T, mode string) *poweredStore {
	t.Helper()
	device := disk.Ext4(t, deviceSize)
	b := bustest.Open(t, bustest.Store(filepath.Join(device.Dir, "data")), bustest.Sync(mode))
	return &poweredStore{Bus: b, device: device, appender: NewAppender(b), returned: map[string]bool{}}
}

// appendAll appends n events from several goroutines, one power loss after the other meanwhile, and returns what each of them left.
func (s *poweredStore) appendAll(t *testing.T, prefix string, n, losses int) []aftermath {
	t.Helper()
	const writers = 8
	ctx := bustest.Context(t)
	var writing sync.WaitGroup
	done := make(chan struct{}, n)
	for w := range writers {
		writing.Go(func() {
			for i := w; i < n; i += writers {
				s.appendOne(ctx, t, fmt.Sprint(prefix, i))
				done <- struct{}{}
			}
		})
	}
	var found []aftermath
	for i := range losses {
		for range (i+1)*n/losses - i*n/losses {
			<-done
		}
		found = append(found, s.powerLoss(t))
	}
	writing.Wait()
	return found
}

func (s *poweredStore) appendOne(ctx context.Context, t *testing.T, id string) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	ev := testEvent("github", id)
	ev.Payload = fmt.Appendf(nil, "%01000d", len(id))
	if _, err := s.appender.Append(ctx, ev, bus.Fence{}); err != nil {
		t.Errorf("append %s: %v", id, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned[id] = true
}

// aftermath is a device after a power loss, and the appends that had returned before it.
type aftermath struct {
	device   *disk.Device
	returned []string
}

func (s *poweredStore) powerLoss(t *testing.T) aftermath {
	t.Helper()
	s.gate.Lock()
	defer s.gate.Unlock()
	// Something is always on its way when the power goes: stored by the server, not synced, no answer given.
	m, err := Encode(s.Names, ptr(testEvent("github", fmt.Sprint("under way ", len(s.returned)))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(bustest.Context(t), m); err != nil {
		t.Fatal(err)
	}
	a := aftermath{device: s.device.PowerLoss(t)}
	for id := range s.returned {
		a.returned = append(a.returned, id)
	}
	return a
}

// open opens the store that a power loss has left.
func (a aftermath) open(t *testing.T, mode string) *bus.Bus {
	t.Helper()
	return bustest.Open(t, bustest.Store(filepath.Join(a.device.Dir, "data")), bustest.Sync(mode))
}

// lost are the events of ids that the store does not hold whole.
func lost(t *testing.T, b *bus.Bus, ids []string) (missing []string) {
	t.Helper()
	for _, id := range ids {
		ev, err := Find(bustest.Context(t), b, "github/"+id)
		switch {
		case errors.Is(err, triggerd.ErrNotFound):
			missing = append(missing, id)
		case err != nil:
			t.Fatal(err)
		case len(ev.Payload) != 1000:
			t.Errorf("%s has %d bytes", id, len(ev.Payload))
		}
	}
	return missing
}

func TestPowerLossAfterAppends(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, mode := range []string{bus.SyncGroup, bus.SyncAlways} {
		t.Run(mode, func(t *testing.T) {
			s := openPowered(t, mode)
			for i, a := range s.appendAll(t, "n", 240, 3) {
				b := a.open(t, mode)
				if missing := lost(t, b, a.returned); len(missing) > 0 {
					t.Errorf("power loss %d: %d of %d appends that had returned are lost: %v", i, len(missing), len(a.returned), missing)
				}
				t.Logf("power loss %d: all %d appends that had returned are there", i, len(a.returned))
				// The store goes on, and knows what it holds.
				if r := mustAppend(t, b, testEvent("github", a.returned[0]), bus.Fence{}); !r.Duplicate {
					t.Errorf("power loss %d: %s is stored twice", i, a.returned[0])
				}
				mustAppend(t, b, testEvent("github", "afterwards"), bus.Fence{})
				b.Close()
			}
		})
	}
	// If this did not lose anything, the test above would show nothing.
	t.Run("interval does lose", func(t *testing.T) {
		s := openPowered(t, bus.SyncInterval)
		a := s.appendAll(t, "n", 240, 1)[0]
		missing := lost(t, a.open(t, bus.SyncInterval), a.returned)
		if len(missing) == 0 {
			t.Fatalf("none of %d appends was lost, though nothing was synced", len(a.returned))
		}
		t.Logf("%d of %d appends that had returned are lost, as the mode allows", len(missing), len(a.returned))
	})
}

// Pruning, rollups and the compaction that they cause rewrite what was on the device before.
func TestPowerLossAfterPruningAndRollups(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := openPowered(t, bus.SyncGroup)
	ctx := bustest.Context(t)
	s.appendAll(t, "old", 200, 0)
	info, err := s.Events.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pruned := info.State.LastSeq
	fence := acquire(t, s.Bus, "github")
	prune(t, pruner(s.Bus), old(), map[string]uint64{"github": pruned})
	const turns = 50
	for i := range 100 {
		if err := cursor.Commit(ctx, s.Bus, "github", "0", triggerd.Cursor(fmt.Sprint("position ", i)), fence); err != nil {
			t.Fatal(err)
		}
		if i < turns {
			finishTurn(t, s.Bus, i)
		}
	}
	const expired = turns / 2 // two entries each
	if err := s.Turns.Purge(ctx, jetstream.WithPurgeSequence(2*expired+1)); err != nil {
		t.Fatal(err)
	}
	a := s.appendAll(t, "new", 80, 1)[0]
	b := a.open(t, bus.SyncGroup)
	var fresh []string
	for _, id := range a.returned {
		if id[:3] == "new" {
			fresh = append(fresh, id)
		}
	}
	if missing := lost(t, b, fresh); len(fresh) != 80 || len(missing) > 0 {
		t.Errorf("%d of %d appends that had returned are lost: %v", len(missing), len(fresh), missing)
	}
	if n := len(order(t, b, "github")); n > 81 {
		t.Errorf("%d events are there: pruned ones are back", n)
	}
	if c, err := cursor.Load(ctx, b, "github", "0"); err != nil || string(c) != "position 99" {
		t.Errorf("position: %q, want the last one that was committed: %v", c, err)
	}
	if m, err := b.Last(ctx, b.Events, fence.Subject); err != nil || m == nil || m.Sequence != fence.Seq {
		t.Errorf("the fence is lost: %+v, %v", m, err)
	}
	for i := expired; i < turns; i++ {
		m, err := b.Last(ctx, b.Turns, b.Names.TurnAnywhere(fmt.Sprint("turn", i)))
		if err != nil || m == nil || string(m.Data) != "final" {
			t.Errorf("turn %d: %+v, %v", i, m, err)
		}
	}
	t.Logf("%d events, the position, the fence and %d finished turns are there after pruning, 100 rollups of the position and the end of %d older turns", len(fresh), turns-expired, expired)
}

// finishTurn writes a turn as the ledger does: a first entry and a final one.
func finishTurn(t *testing.T, b *bus.Bus, i int) {
	t.Helper()
	ctx := bustest.Context(t)
	subject := b.Names.Turn("default", "1", fmt.Sprint("turn", i))
	open := nats.NewMsg(subject)
	bus.Expect(open, b.Names.TurnAnywhere(fmt.Sprint("turn", i)), 0)
	seq, err := b.Publish(ctx, open)
	if err != nil {
		t.Fatal(err)
	}
	final := nats.NewMsg(subject)
	final.Data = []byte("final")
	bus.Expect(final, subject, seq)
	if _, err := b.Publish(ctx, final); err != nil {
		t.Fatal(err)
	}
	if err := b.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}
