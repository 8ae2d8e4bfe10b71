package sources_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sourceFunc is a source made of its Run.
type sourceFunc func(ctx context.Context, rt sources.Runtime) error

func (f sourceFunc) Run(ctx context.Context, rt sources.Runtime) error { return f(ctx, rt) }

// supervised runs a source over mem in a bubble and hands out what a test looks at.
type supervised struct {
	mem    *sourcetest.Memory
	status *sources.Status
	log    *bytes.Buffer
	starts []time.Duration // when each run began, since the first
	cancel context.CancelFunc
	ended  chan error
}

func supervise(src sourceFunc) *supervised {
	s := &supervised{mem: sourcetest.NewMemory("c"), status: new(sources.Status), log: new(bytes.Buffer), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	began := time.Now()
	counted := sourceFunc(func(ctx context.Context, rt sources.Runtime) error {
		s.starts = append(s.starts, time.Since(began))
		return src(ctx, rt)
	})
	fresh := func(context.Context) (sources.Runtime, error) { return s.mem.Runtime(), nil }
	go func() {
		s.ended <- sources.Supervise(ctx, counted, fresh, sources.BackoffOptions{Status: s.status, Log: zerolog.New(s.log)})
	}()
	return s
}

// stop ends it and returns what Supervise returned.
func (s *supervised) stop() error {
	s.cancel()
	return <-s.ended
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestSupervise(t *testing.T) {
	broken := errors.New("upstream says no")

	t.Run("a failing source is run again with growing waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(func(context.Context, sources.Runtime) error { return broken })
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			snap := s.status.Snapshot()
			if snap.State != sources.Backoff || snap.Error != broken.Error() || snap.Restarts == 0 {
				t.Errorf("status %+v", snap)
			}
			if err := s.stop(); err != nil {
				t.Errorf("Supervise: %v", err)
			}
			if s.status.Snapshot().State != sources.Stopped {
				t.Errorf("status %+v", s.status.Snapshot())
			}
			for i, ceiling := 1, time.Second; i < len(s.starts); i, ceiling = i+1, min(2*ceiling, 30*time.Second) {
				if wait := s.starts[i] - s.starts[i-1]; wait >= ceiling {
					t.Errorf("wait %d is %v, the ceiling is %v", i, wait, ceiling)
				}
			}
			// Full jitter waits half the ceiling on average: 40 runs in 10 minutes, give or take.
			if n := len(s.starts); n < 20 || n > 100 {
				t.Errorf("%d runs in 10 minutes", n)
			}
		})
	})
	t.Run("a run of a minute resets the waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(func(ctx context.Context, _ sources.Runtime) error {
				if err := sources.Sleep(ctx, time.Minute); err != nil {
					return err
				}
				return broken
			})
			time.Sleep(time.Hour)
			synctest.Wait()
			if err := s.stop(); err != nil {
				t.Errorf("Supervise: %v", err)
			}
			for i := 1; i < len(s.starts); i++ {
				if wait := s.starts[i] - s.starts[i-1] - time.Minute; wait >= time.Second {
					t.Errorf("wait %d is %v", i, wait)
				}
			}
		})
	})
	t.Run("a panic is a failure and tells no payload", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			first := true
			s := supervise(func(ctx context.Context, _ sources.Runtime) error {
				if first {
					first = false
					panic("payload of the event")
				}
				return untilStopped(ctx)
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(s.starts) != 2 {
				t.Errorf("%d runs", len(s.starts))
			}
			if err := s.stop(); err != nil {
				t.Errorf("Supervise: %v", err)
			}
			if log := s.log.String(); !strings.Contains(log, "panicked") || !strings.Contains(log, "stack") || strings.Contains(log, "payload of") {
				t.Errorf("log %s", log)
			}
		})
	})
	t.Run("each run sees the cursor that is stored by then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var cursors []string
			s := supervise(func(ctx context.Context, rt sources.Runtime) error {
				cursors = append(cursors, string(rt.Cursor))
				ev := triggerd.Event{ID: fmt.Sprint(len(cursors)), Type: "t", Cursor: triggerd.Cursor(fmt.Sprint(len(cursors)))}
				if len(cursors) == 3 {
					return untilStopped(ctx)
				}
				_, err := rt.Emit.Emit(ctx, ev)
				return errors.Join(broken, err)
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			_ = s.stop()
			if got := strings.Join(cursors, ","); got != ",1,2" {
				t.Errorf("cursors %q", got)
			}
			if snap := s.status.Snapshot(); snap.Events != 2 || snap.LastEvent.IsZero() {
				t.Errorf("status %+v", snap)
			}
		})
	})
	t.Run("being fenced is final", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(func(context.Context, sources.Runtime) error { return fmt.Errorf("store event: %w", triggerd.ErrFenced) })
			if err := <-s.ended; !errors.Is(err, triggerd.ErrFenced) {
				t.Errorf("Supervise: %v", err)
			}
			if snap := s.status.Snapshot(); snap.State != sources.Failed || len(s.starts) != 1 {
				t.Errorf("status %+v after %d runs", snap, len(s.starts))
			}
			s.cancel()
		})
	})
	t.Run("a source that ends by itself is run again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(func(context.Context, sources.Runtime) error { return nil })
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(s.starts) < 2 {
				t.Errorf("%d runs", len(s.starts))
			}
			_ = s.stop()
		})
	})
	t.Run("a stop ends the source and the waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(func(ctx context.Context, rt sources.Runtime) error {
				rt.Status.Running()
				return untilStopped(ctx)
			})
			synctest.Wait()
			if got := s.status.Snapshot().State; got != sources.Running {
				t.Errorf("state %q", got)
			}
			if err := s.stop(); err != nil {
				t.Errorf("Supervise: %v", err)
			}
		})
	})
	t.Run("a repeated failure is logged at most once a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			log := new(bytes.Buffer)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			runs := 0
			src := sourceFunc(func(context.Context, sources.Runtime) error { runs++; return broken })
			fresh := func(context.Context) (sources.Runtime, error) { return sourcetest.NewMemory("c").Runtime(), nil }
			_ = sources.Supervise(ctx, src, fresh, sources.BackoffOptions{Initial: time.Millisecond, Max: 10 * time.Millisecond, Log: zerolog.New(log)})
			if lines := strings.Count(log.String(), "\n"); lines > 11 || runs < 100 {
				t.Errorf("%d lines for %d runs in 10 s", lines, runs)
			}
		})
	})
	t.Run("a cursor that cannot be loaded is a failure like others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			status, tries, ran := new(sources.Status), 0, false
			fresh := func(context.Context) (sources.Runtime, error) {
				if tries++; tries < 3 {
					return sources.Runtime{}, triggerd.ErrUnavailable
				}
				return sourcetest.NewMemory("c").Runtime(), nil
			}
			src := sourceFunc(func(ctx context.Context, _ sources.Runtime) error { ran = true; return untilStopped(ctx) })
			ended := make(chan error, 1)
			go func() { ended <- sources.Supervise(ctx, src, fresh, sources.BackoffOptions{Status: status}) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil || !ran {
				t.Errorf("Supervise: %v; ran %v", err, ran)
			}
		})
	})
}

func TestPersistent(t *testing.T) {
	t.Run("tries until the store takes it, and shows the outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.FailNext(20, fmt.Errorf("%w: disk is full", triggerd.ErrUnavailable))
			rt := mem.Runtime()
			log := new(bytes.Buffer)
			rt.Log = zerolog.New(log)
			began := time.Now()
			done := make(chan error, 1)
			go func() {
				_, err := sources.Persistent(rt).Emit(t.Context(), triggerd.Event{ID: "1", Type: "t"})
				done <- err
			}()
			synctest.Wait()
			if got := rt.Status.Snapshot().Error; !strings.Contains(got, "disk is full") {
				t.Errorf("status %q", got)
			}
			if err := <-done; err != nil || len(mem.Events()) != 1 {
				t.Errorf("error %v, events %v", err, mem.Events())
			}
			if took := time.Since(began); took > 40*time.Second || took < 10*time.Second {
				t.Errorf("20 failures took %v", took)
			}
			if rt.Status.Snapshot().Error != "" {
				t.Error("the outage is over, the status still shows it")
			}
			if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 20 {
				t.Errorf("%d lines", lines)
			}
		})
	})
	t.Run("ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.FailNext(1000, triggerd.ErrUnavailable)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := sources.Persistent(mem.Runtime()).EmitPage(ctx, nil, triggerd.Cursor("x"))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
	for _, final := range []error{triggerd.ErrFenced, triggerd.ErrInvalidEvent, triggerd.ErrTooLarge, triggerd.ErrLoop, errors.New("other")} {
		t.Run("hands on "+final.Error(), func(t *testing.T) {
			mem := sourcetest.NewMemory("c")
			mem.FailNext(1, final)
			if _, err := sources.Persistent(mem.Runtime()).Emit(t.Context(), triggerd.Event{ID: "1", Type: "t"}); !errors.Is(err, final) || mem.Calls() != 1 {
				t.Errorf("error %v after %d calls", err, mem.Calls())
			}
		})
	}
}

func TestObserveCounts(t *testing.T) {
	mem, status := sourcetest.NewMemory("c"), new(sources.Status)
	e := sources.Observe(mem, status)
	ev := func(id string) triggerd.Event { return triggerd.Event{ID: id, Type: "t"} }
	ctx := t.Context()
	_, _ = e.Emit(ctx, ev("1"))
	_, _ = e.EmitPage(ctx, []triggerd.Event{ev("1"), ev("2"), ev("3")}, nil)
	page := []triggerd.Event{ev("4"), {ID: "5"}, ev("6")}
	_, err := e.EmitPage(ctx, page, nil)
	if !sources.Blames(err) {
		t.Fatalf("a page with an invalid event: %v", err)
	}
	var skipped []int
	if err := sources.EmitEach(ctx, e, page, func(i int, _ error) { skipped = append(skipped, i) }); err != nil || fmt.Sprint(skipped) != "[1]" {
		t.Fatalf("EmitEach: %v, skipped %v", err, skipped)
	}
	mem.FailNext(1, triggerd.ErrUnavailable)
	_, _ = e.Emit(ctx, ev("7"))
	if s := status.Snapshot(); s.Events != 5 || s.Duplicates != 1 || s.Rejected != 1 || s.State != sources.Running {
		t.Errorf("status %+v", s)
	}
}

func TestStatusIsSafeForConcurrentUse(t *testing.T) {
	status := new(sources.Status)
	e := sources.Observe(sourcetest.NewMemory("c"), status)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				_, _ = e.Emit(context.Background(), triggerd.Event{ID: fmt.Sprint(i, "-", n), Type: "t"})
				status.Running()
				status.Report(nil)
				status.Snapshot()
			}
		})
	}
	wg.Wait()
	if got := status.Snapshot().Events; got != 800 {
		t.Errorf("%d events", got)
	}
	var none *sources.Status
	none.Running()
	none.Report(errors.New("x"))
	none.Rejected()
	if none.Snapshot().State != sources.Starting {
		t.Errorf("a nil status: %+v", none.Snapshot())
	}
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l sources.Limiter
		passed := map[string]int{}
		var held uint64
		for i := range 250 {
			for _, cause := range []string{"a", "b"} {
				if n, ok := l.Allow(cause); ok {
					passed[cause]++
					held += n
				}
			}
			_ = i
			time.Sleep(10 * time.Millisecond)
		}
		if passed["a"] != 3 || passed["b"] != 3 || held != 2*2*99 {
			t.Errorf("passed %v, reported as held back %d", passed, held)
		}
		for i := range 10_000 { // causes that hold data must not fill the memory, and still pass
			if _, ok := l.Allow(fmt.Sprint(i)); !ok {
				t.Fatalf("cause %d was held back", i)
			}
		}
	})
}

func TestSenderTexts(t *testing.T) {
	for _, id := range []string{"", "a", strings.Repeat("x", 1024), "žluťoučký"} {
		if err := sources.CheckID(id); err != nil {
			t.Errorf("CheckID(%.20q): %v", id, err)
		}
	}
	for _, id := range []string{strings.Repeat("x", 1025), "\xff", "a\nb", "a\x00", "a\x7f", "a\u0085"} {
		if err := sources.CheckID(id); !errors.Is(err, triggerd.ErrInvalidEvent) {
			t.Errorf("CheckID(%.20q) = %v", id, err)
		}
	}
	if err := sources.CheckType(strings.Repeat("x", 257)); !errors.Is(err, triggerd.ErrInvalidEvent) || !strings.Contains(err.Error(), "type") {
		t.Errorf("CheckType: %v", err)
	}
	for text, want := range map[string]int{"": 0, "0": 0, "8": 8, "007": 7, "99999999999999999999": 1_000_000} {
		if got, err := sources.ParseHops(text); err != nil || got != want {
			t.Errorf("ParseHops(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "+1", "1 ", "x", "1e3", "٣"} {
		if _, err := sources.ParseHops(text); !errors.Is(err, triggerd.ErrInvalidEvent) {
			t.Errorf("ParseHops(%q) = %v", text, err)
		}
	}
}

func TestKeepHeaders(t *testing.T) {
	in := map[string][]string{"X-B": {"2"}, "x-b": {"3"}, "X-A": {"1", "one"}, "Drop": {"x"}, "Latin": {"caf\xe9"}, "Empty": {}}
	got := sources.KeepHeaders(in, func(name string) bool { return name == "drop" })
	if fmt.Sprint(got) != "map[empty: latin:caf\uFFFD x-a:1, one x-b:2, 3]" {
		t.Errorf("kept %v", got)
	}
	big := map[string][]string{"small": {"1"}}
	for i := range 20 {
		big[fmt.Sprintf("h%02d", i)] = []string{strings.Repeat("x", 1000+i)}
	}
	got = sources.KeepHeaders(big, func(string) bool { return false })
	total := 0
	for name, value := range got {
		total += len(name) + len(value)
	}
	if total > sources.MaxHeaders || got["small"] != "1" || got["h00"] == "" || got["h19"] != "" {
		t.Errorf("kept %d headers of %d bytes", len(got), total)
	}
}

func TestGap(t *testing.T) {
	at := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	one, two := sources.Gap("queue overflowed", at), sources.Gap("queue overflowed", at)
	one.Connection = "c"
	if err := one.Validate(); err != nil || one.ID == two.ID || one.Type != sources.GapType ||
		string(one.Payload) != `{"at":"2026-11-30T08:00:00Z","reason":"queue overflowed"}` {
		t.Errorf("gap %+v: %v", one, err)
	}
}
