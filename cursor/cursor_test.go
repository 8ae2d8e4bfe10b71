package cursor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
	"github.com/triggerd/triggerd/cursor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	conn = "github"
	sub  = triggerd.DefaultSubscription
)

func acquire(t *testing.T, b *bus.Bus, daemon string) bus.Fence {
	t.Helper()
	f, err := cursor.Acquire(bustest.Context(t), b, conn, cursor.Owner{Daemon: daemon, Epoch: 1, Since: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func commit(t *testing.T, b *bus.Bus, subscription string, c triggerd.Cursor, f bus.Fence) {
	t.Helper()
	if err := cursor.Commit(bustest.Context(t), b, conn, subscription, c, f); err != nil {
		t.Fatal(err)
	}
}

// event stores a message as an event with a position does.
func event(t *testing.T, b *bus.Bus, subscription, id string, c triggerd.Cursor, f bus.Fence) error {
	t.Helper()
	m := nats.NewMsg(b.Names.Event(conn, subscription, triggerd.HashID(id)))
	bus.SetCursor(m.Header, c)
	f.Apply(m)
	_, err := b.Publish(bustest.Context(t), m)
	return err
}

func mustEvent(t *testing.T, b *bus.Bus, id string, c triggerd.Cursor) {
	t.Helper()
	if err := event(t, b, sub, id, c, bus.Fence{}); err != nil {
		t.Fatal(err)
	}
}

func loads(t *testing.T, b *bus.Bus, subscription string, want triggerd.Cursor) {
	t.Helper()
	got, err := cursor.Load(bustest.Context(t), b, conn, subscription)
	if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Fatalf("position %q (nil: %v), want %q (nil: %v): %v", got, got == nil, want, want == nil, err)
	}
}

func TestLoadPicksTheNewerPosition(t *testing.T) {
	b := bustest.Open(t)
	loads(t, b, sub, nil)
	mustEvent(t, b, "a", triggerd.Cursor("1"))
	loads(t, b, sub, triggerd.Cursor("1"))
	commit(t, b, sub, triggerd.Cursor("2"), bus.Fence{})
	loads(t, b, sub, triggerd.Cursor("2"))
	mustEvent(t, b, "b", triggerd.Cursor("3"))
	loads(t, b, sub, triggerd.Cursor("3"))
	commit(t, b, sub, triggerd.Cursor("4"), bus.Fence{})
	commit(t, b, sub, triggerd.Cursor("5"), bus.Fence{})
	loads(t, b, sub, triggerd.Cursor("5"))
	t.Run("an empty position is one", func(t *testing.T) {
		mustEvent(t, b, "c", triggerd.Cursor{})
		loads(t, b, sub, triggerd.Cursor{})
		commit(t, b, sub, triggerd.Cursor{}, bus.Fence{})
		loads(t, b, sub, triggerd.Cursor{})
	})
	t.Run("a committed nil is none", func(t *testing.T) {
		commit(t, b, sub, nil, bus.Fence{})
		loads(t, b, sub, nil)
	})
	t.Run("an event without a position does not hide the one before it", func(t *testing.T) {
		commit(t, b, sub, triggerd.Cursor("6"), bus.Fence{})
		mustEvent(t, b, "d", nil)
		loads(t, b, sub, triggerd.Cursor("6"))
	})
}

func TestLoadIsPerSubscription(t *testing.T) {
	b := bustest.Open(t)
	for _, s := range []string{"s1", "s2", "s3"} {
		if err := event(t, b, s, "same id", triggerd.Cursor("event "+s), bus.Fence{}); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, b, "s2", triggerd.Cursor("moved s2"), bus.Fence{})
	loads(t, b, "s1", triggerd.Cursor("event s1"))
	loads(t, b, "s2", triggerd.Cursor("moved s2"))
	loads(t, b, "s3", triggerd.Cursor("event s3"))
	loads(t, b, "s4", nil)
}

func TestLoadNamesADamagedPosition(t *testing.T) {
	b := bustest.Open(t)
	m := nats.NewMsg(b.Names.Cursor(conn, sub))
	m.Header.Set(bus.HeaderCursor, "not base64!")
	if _, err := b.Publish(bustest.Context(t), m); err != nil {
		t.Fatal(err)
	}
	if c, err := cursor.Load(bustest.Context(t), b, conn, sub); err == nil {
		t.Fatalf("loaded %q", c)
	}
}

func TestPositionsAndFencesAreReplacedNotPiledUp(t *testing.T) {
	b := bustest.Open(t)
	for i := range 20 {
		f := acquire(t, b, fmt.Sprint("daemon", i))
		commit(t, b, sub, triggerd.Cursor(fmt.Sprint(i)), f)
	}
	info, err := b.Events.Info(bustest.Context(t))
	if err != nil || info.State.Msgs != 2 {
		t.Fatalf("%d messages, want one fence and one position: %v", info.State.Msgs, err)
	}
	m, err := b.Last(bustest.Context(t), b.Events, b.Names.Owner(conn))
	if err != nil {
		t.Fatal(err)
	}
	var o cursor.Owner
	if err := json.Unmarshal(m.Data, &o); err != nil || o.Daemon != "daemon19" {
		t.Fatalf("owner %+v: %v", o, err)
	}
	if m.Header.Get(bus.HeaderTTL) != bus.TTLNever {
		t.Fatal("the fence may expire")
	}
}

func TestANewOwnerFencesTheOneBeforeIt(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	first := acquire(t, b, "first")
	if err := event(t, b, sub, "a", triggerd.Cursor("1"), first); err != nil {
		t.Fatal(err)
	}
	commit(t, b, sub, triggerd.Cursor("2"), first)
	second := acquire(t, b, "second")

	fenced := func(t *testing.T) {
		t.Helper()
		if err := event(t, b, sub, "b", triggerd.Cursor("x"), first); !errors.Is(err, bus.ErrWrongSequence) {
			t.Fatalf("append: %v", err)
		}
		if err := cursor.Commit(bustest.Context(t), b, conn, sub, triggerd.Cursor("x"), first); !errors.Is(err, triggerd.ErrFenced) {
			t.Fatalf("commit: %v", err)
		}
		loads(t, b, sub, triggerd.Cursor("2"))
	}
	t.Run("at once", fenced)
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	t.Run("after a restart", fenced)
	t.Run("the new one goes on", func(t *testing.T) {
		if err := event(t, b, sub, "b", triggerd.Cursor("3"), second); err != nil {
			t.Fatal(err)
		}
		commit(t, b, sub, triggerd.Cursor("4"), second)
		loads(t, b, sub, triggerd.Cursor("4"))
	})
	t.Run("other connections are not concerned", func(t *testing.T) {
		f, err := cursor.Acquire(bustest.Context(t), b, "gitlab", cursor.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cursor.Commit(bustest.Context(t), b, "gitlab", sub, triggerd.Cursor("1"), f); err != nil {
			t.Fatal(err)
		}
		commit(t, b, sub, triggerd.Cursor("5"), second)
	})
}

func TestAPositionThatNoMessageHoldsIsRefused(t *testing.T) {
	b := bustest.Open(t)
	err := cursor.Commit(bustest.Context(t), b, conn, sub, triggerd.Cursor(strings.Repeat("x", 100<<10)), bus.Fence{})
	if !errors.Is(err, triggerd.ErrTooLarge) {
		t.Fatalf("commit: %v", err)
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	b := bustest.Open(t)
	b.Close()
	ctx := bustest.Context(t)
	if _, err := cursor.Load(ctx, b, conn, sub); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("load: %v", err)
	}
	if err := cursor.Commit(ctx, b, conn, sub, nil, bus.Fence{}); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if _, err := cursor.Acquire(ctx, b, conn, cursor.Owner{}); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("acquire: %v", err)
	}
}
