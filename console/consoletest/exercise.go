package consoletest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
)

// Exercise checks that the Backend that open makes of a Fake answers every method exactly as the Fake itself does, errors included.
// open may return the Fake, or whatever stands between it and the caller.
func Exercise(t *testing.T, open func(t *testing.T, f *Fake) console.Backend) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.call(t.Context(), open(t, Sample()))
			want, wantErr := c.call(t.Context(), Sample())
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %#v\nwant %#v", got, want)
			}
			if c.fails != nil && !errors.Is(err, c.fails) {
				t.Fatalf("error %v does not wrap %v", err, c.fails)
			}
			if c.fails == nil && err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("errors keep their sentinel and words", func(t *testing.T) { exerciseErrors(t, open) })
	t.Run("a cancel ends with its context", func(t *testing.T) {
		f := Sample()
		f.Block, f.Blocked = make(chan struct{}), make(chan struct{}, 1)
		b := open(t, f)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := b.CancelTurn(ctx, f.TurnList[1].Hash); ended <- err }()
		<-f.Blocked
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want the context's", err)
		}
	})
	t.Run("a fire carries its request whole", func(t *testing.T) {
		f := Sample()
		want := console.FireRequest{Trigger: "ship", Data: []byte("\x00\xff<&>"), ID: "id/1#2"}
		if _, err := open(t, f).Fire(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if len(f.Fired) != 1 || !reflect.DeepEqual(f.Fired[0], want) {
			t.Fatalf("the backend saw %#v, want %#v", f.Fired, want)
		}
	})
}

func exerciseErrors(t *testing.T, open func(t *testing.T, f *Fake) console.Backend) {
	sentinels := []error{triggerd.ErrNotFound, triggerd.ErrConflict, triggerd.ErrInvalidEvent, triggerd.ErrTooLarge, triggerd.ErrLoop,
		triggerd.ErrUnavailable, console.ErrInvalidConfig, console.ErrBadRequest, errors.New("other")}
	for _, sentinel := range sentinels {
		f := Sample()
		f.Err = fmt.Errorf("a.yaml:3:1: line \"one\"\nline <two>: %w", sentinel)
		b := open(t, f)
		for _, c := range calls {
			if c.name == "ready" {
				continue
			}
			_, err := c.call(t.Context(), b)
			if err == nil || err.Error() != f.Err.Error() {
				t.Errorf("%s: error %v, want %v", c.name, err, f.Err)
			}
			for _, other := range sentinels[:len(sentinels)-1] {
				if errors.Is(err, other) != (other == sentinel) {
					t.Errorf("%s: errors.Is(%q, %q) is %t", c.name, err, other, errors.Is(err, other))
				}
			}
		}
	}
}

type call struct {
	name  string
	fails error
	call  func(context.Context, console.Backend) (any, error)
}

const awkward = "hooks/a/b#1:c?d&e=é" // an event's reference
var until = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

// do adapts a method to call.
func do[T any](f func(context.Context, console.Backend) (T, error)) func(context.Context, console.Backend) (any, error) {
	return func(ctx context.Context, b console.Backend) (any, error) { return f(ctx, b) }
}

func byRef[T any](method func(console.Backend, context.Context, string) (T, error), ref string) func(context.Context, console.Backend) (any, error) {
	return func(ctx context.Context, b console.Backend) (any, error) { return method(b, ctx, ref) }
}

func events(q console.EventQuery) func(context.Context, console.Backend) (any, error) {
	return do(func(ctx context.Context, b console.Backend) ([]console.EventInfo, error) {
		list, err := b.Events(ctx, q)
		return notNil(list, err), err
	})
}

func turns(q console.TurnQuery) func(context.Context, console.Backend) (any, error) {
	return do(func(ctx context.Context, b console.Backend) ([]console.TurnInfo, error) {
		list, err := b.Turns(ctx, q)
		return notNil(list, err), err
	})
}

// notNil makes an empty list and a missing one alike: the contract does not tell them apart.
func notNil[T any](list []T, err error) []T {
	if len(list) == 0 || err != nil {
		return []T{}
	}
	return list
}

var calls = []call{
	{"events", nil, events(console.EventQuery{})},
	{"events of a connection", nil, events(console.EventQuery{Connection: "orders"})},
	{"events of a type", nil, events(console.EventQuery{Type: "order.created"})},
	{"events after one", nil, events(console.EventQuery{After: 13, Limit: 1})},
	{"events that do not exist", nil, events(console.EventQuery{Connection: "x&y=z"})},
	{"event by sequence", nil, byRef(console.Backend.Event, "12")},
	{"event by an awkward reference", nil, byRef(console.Backend.Event, awkward)},
	{"event with bytes", nil, byRef(console.Backend.Event, "orders/41")},
	{"event that does not exist", triggerd.ErrNotFound, byRef(console.Backend.Event, "../../x")},
	{"event of an ambiguous prefix", triggerd.ErrConflict, byRef(console.Backend.Event, "orders/4")},
	{"turns", nil, turns(console.TurnQuery{Limit: -1})},
	{"turns of a trigger", nil, turns(console.TurnQuery{Trigger: "ship"})},
	{"turns of a connection", nil, turns(console.TurnQuery{Connection: "hooks"})},
	{"turns in a state", nil, turns(console.TurnQuery{State: "dead"})},
	{"turns after one", nil, turns(console.TurnQuery{After: Sample().TurnList[0].Hash, Limit: 1})},
	{"turn by hash", nil, byRef(console.Backend.Turn, Sample().TurnList[0].Hash)},
	{"turn by prefix", nil, byRef(console.Backend.Turn, Sample().TurnList[0].Hash[:8])},
	{"turn by an awkward key", nil, byRef(console.Backend.Turn, Sample().TurnList[1].Key)},
	{"turn that does not exist", triggerd.ErrNotFound, byRef(console.Backend.Turn, "a:b:c")},
	{"retry", nil, byRef(console.Backend.RetryTurn, "orders:ship:42")},
	{"retry of a turn that is not final", triggerd.ErrConflict, byRef(console.Backend.RetryTurn, Sample().TurnList[1].Key)},
	{"cancel", nil, byRef(console.Backend.CancelTurn, Sample().TurnList[1].Key)},
	{"cancel of a final turn", triggerd.ErrConflict, byRef(console.Backend.CancelTurn, "orders:ship:42")},
	{"explain", nil, byRef(console.Backend.Explain, "orders/42")},
	{"explain an event that does not exist", triggerd.ErrNotFound, byRef(console.Backend.Explain, "99")},
	{"triggers", nil, do(func(ctx context.Context, b console.Backend) ([]console.TriggerInfo, error) { return b.Triggers(ctx) })},
	{"pause", nil, do(func(ctx context.Context, b console.Backend) (console.TriggerInfo, error) {
		return b.PauseTrigger(ctx, "ship", console.PauseRequest{Until: &until, Note: "a \"note\""})
	})},
	{"pause without an end", nil, do(func(ctx context.Context, b console.Backend) (console.TriggerInfo, error) {
		return b.PauseTrigger(ctx, "ship", console.PauseRequest{})
	})},
	{"pause of an unknown trigger", triggerd.ErrNotFound, do(func(ctx context.Context, b console.Backend) (console.TriggerInfo, error) {
		return b.PauseTrigger(ctx, "../x", console.PauseRequest{})
	})},
	{"resume", nil, byRef(console.Backend.ResumeTrigger, "hello")},
	{"fire", nil, do(func(ctx context.Context, b console.Backend) (console.FireResult, error) {
		return b.Fire(ctx, console.FireRequest{Trigger: "ship", Data: []byte("hi"), ID: "x"})
	})},
	{"fire an event again", nil, do(func(ctx context.Context, b console.Backend) (console.FireResult, error) {
		return b.Fire(ctx, console.FireRequest{Trigger: "ship", Event: awkward})
	})},
	{"fire twice", nil, do(func(ctx context.Context, b console.Backend) (console.FireResult, error) {
		if _, err := b.Fire(ctx, console.FireRequest{Trigger: "ship", ID: "x"}); err != nil {
			return console.FireResult{}, err
		}
		return b.Fire(ctx, console.FireRequest{Trigger: "ship", ID: "x"})
	})},
	{"backfill", nil, do(func(ctx context.Context, b console.Backend) (console.BackfillResult, error) {
		at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
		return b.Backfill(ctx, console.BackfillRequest{Connection: "nightly", From: at, To: at.Add(24 * time.Hour), Again: true})
	})},
	{"fire an unknown trigger", triggerd.ErrNotFound, do(func(ctx context.Context, b console.Backend) (console.FireResult, error) {
		return b.Fire(ctx, console.FireRequest{Trigger: "nope"})
	})},
	{"reload", nil, do(func(ctx context.Context, b console.Backend) (console.ReloadResult, error) { return b.Reload(ctx) })},
	{"daemons", nil, do(func(ctx context.Context, b console.Backend) ([]console.DaemonInfo, error) { return b.Daemons(ctx) })},
	{"apps", nil, do(func(ctx context.Context, b console.Backend) ([]console.AppInfo, error) { return b.Apps(ctx) })},
	{"apps add", nil, byRef(console.Backend.AddApp, "orders")},
	{"apps add of an unknown connection", triggerd.ErrNotFound, byRef(console.Backend.AddApp, "a b")},
	{"apps remove", nil, byRef(console.Backend.RemoveApp, "orders")},
	{"ready", nil, do(func(ctx context.Context, b console.Backend) (console.Readiness, error) { return b.Ready(ctx), nil })},
}
