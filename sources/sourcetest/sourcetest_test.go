package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tape is the smallest honest upstream: a list of lines, and a source whose cursor is the number of lines read.
type tape struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func newTape(*testing.T) Upstream { return &tape{changed: make(chan struct{})} }

func (u *tape) write(line string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lines = append(u.lines, line)
	close(u.changed)
	u.changed = make(chan struct{})
}

func (u *tape) read(i int) (string, <-chan struct{}, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i < len(u.lines) {
		return u.lines[i], nil, true
	}
	return "", u.changed, false
}

func (u *tape) Source(*testing.T) sources.Source { return u }
func (u *tape) Happen(_ *testing.T, n int)       { u.write(strconv.Itoa(n)) }

func (u *tape) Number(ev triggerd.Event) int {
	n, _ := strconv.Atoi(string(ev.Payload))
	return n
}

func (u *tape) Run(ctx context.Context, rt sources.Runtime) error {
	emit := sources.Persistent(rt)
	i, _ := strconv.Atoi(string(rt.Cursor))
	for {
		line, changed, ok := u.read(i)
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			continue
		}
		i++
		ev := triggerd.Event{ID: "line-" + strconv.Itoa(i), Type: "line", Payload: []byte(line), Cursor: triggerd.Cursor(strconv.Itoa(i))}
		if line == "bad" {
			ev.Type = ""
		}
		if _, err := emit.Emit(ctx, ev); err != nil && !sources.Blames(err) {
			return err
		}
	}
}

func TestAnHonestSourcePasses(t *testing.T) {
	bad := func(_ *testing.T, u Upstream) { u.(*tape).write("bad") }
	t.Run("real time", func(t *testing.T) { Run(t, Harness{New: newTape, Invalid: bad}) })
	t.Run("fake time", func(t *testing.T) { Run(t, Harness{New: newTape, Invalid: bad, Bubble: true}) })
}

func TestMemory(t *testing.T) {
	ctx := t.Context()
	event := func(n int) triggerd.Event { return triggerd.Event{ID: fmt.Sprint(n), Type: "t"} }

	t.Run("the same id is a duplicate", func(t *testing.T) {
		m := NewMemory("c")
		for want := range 2 {
			r, err := m.Emit(ctx, event(1))
			if err != nil || r.Duplicate != (want == 1) {
				t.Fatalf("receipt %+v, error %v", r, err)
			}
		}
		if len(m.Events()) != 1 || len(m.Duplicates()) != 1 {
			t.Fatalf("events %v, duplicates %v", m.Events(), m.Duplicates())
		}
	})
	t.Run("a page with an invalid event stores nothing and moves nothing", func(t *testing.T) {
		m := NewMemory("c")
		_, err := m.EmitPage(ctx, []triggerd.Event{event(1), {ID: "2"}}, triggerd.Cursor("2"))
		if !errors.Is(err, triggerd.ErrInvalidEvent) || len(m.Events()) != 0 || m.Cursor() != nil {
			t.Fatalf("error %v, events %v, cursor %q", err, m.Events(), m.Cursor())
		}
	})
	t.Run("an empty page moves the cursor", func(t *testing.T) {
		m := NewMemory("c")
		if _, err := m.EmitPage(ctx, nil, triggerd.Cursor("7")); err != nil || string(m.Cursor()) != "7" {
			t.Fatalf("error %v, cursor %q", err, m.Cursor())
		}
	})
	t.Run("a lost answer stores", func(t *testing.T) {
		m := NewMemory("c")
		m.LoseAnswer(1, triggerd.ErrUnavailable)
		if _, err := m.Emit(ctx, event(1)); !errors.Is(err, triggerd.ErrUnavailable) || len(m.Events()) != 1 {
			t.Fatalf("error %v, events %v", err, m.Events())
		}
	})
	t.Run("a failure stores nothing", func(t *testing.T) {
		m := NewMemory("c")
		m.FailNext(1, triggerd.ErrUnavailable)
		if _, err := m.Emit(ctx, event(1)); !errors.Is(err, triggerd.ErrUnavailable) || len(m.Events()) != 0 {
			t.Fatalf("error %v, events %v", err, m.Events())
		}
	})
}
