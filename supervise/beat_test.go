//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// passes waits until the clock that silence is measured by has gone on by d.
func passes(t *testing.T, d time.Duration) {
	t.Helper()
	began := Now()
	must(t, poll(t.Context(), func() bool { return Now()-began > d }))
}

// keepBeating beats until stop is called.
func keepBeating(h *Handle, every time.Duration) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				h.Beat()
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

func withBeat(s Spec, d time.Duration) Spec {
	s.Beat = d
	return s
}

// stubborn makes a child and a grandchild in a session of its own that heed no signal they can ignore.
const stubborn = `trap '' TERM HUP; setsid sh -c 'trap "" TERM HUP; echo grandchild $$; while :; do sleep 0.05; done' & echo child $$; while :; do sleep 0.05; done`

// family waits for the pids of stubborn and of the supervisor.
func family(t *testing.T, g Group, out *output) map[string]int {
	t.Helper()
	pids := map[string]int{"supervisor": g.ID}
	for len(pids) < 3 {
		f := strings.Fields(<-out.lines)
		pids[f[0]] = atoi(t, f[1])
	}
	return pids
}

func TestFrozenDaemon(t *testing.T) {
	t.Run("takes everything with it", func(t *testing.T) {
		const limit = 2 * time.Second
		t.Setenv(victimBeat, limit.String())
		cmd, g, out := startVictim(t, stubborn)
		pids := family(t, g, out)
		passes(t, 2*limit) // the beats come
		for what, pid := range pids {
			if p, err := readProc(pid); err != nil || p.dead() {
				t.Fatalf("%s died while the daemon was well", what)
			}
		}
		frozen := Now()
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, poll(ctx, func() bool { return !Alive(g) }))
		if took := Now() - frozen; took > limit+time.Second {
			t.Errorf("took %v", took)
		}
		for what, pid := range pids {
			gone(t, what, pid)
		}
	})
	t.Run("without Beat changes nothing", func(t *testing.T) {
		cmd, g, out := startVictim(t, "while :; do echo tick; sleep 0.05; done")
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		waitState(t, cmd.Process.Pid, 'T')
		for len(out.lines) > 0 {
			<-out.lines
		}
		for range 40 { // 2 s
			<-out.lines
		}
		if !Alive(g) {
			t.Error("the group is gone")
		}
		must(t, cmd.Process.Kill())
		must(t, WaitGone(t.Context(), g, 10*time.Second))
	})
}

func TestBeatsKeepTheCommand(t *testing.T) {
	h, _ := launch(t)
	must(t, h.Run(t.Context(), withBeat(spec(sh("sleep 5; exit 4")...), 2*time.Second)))
	defer keepBeating(h, 500*time.Millisecond)()
	if rep, err := h.Wait(); err != nil || rep != (Report{Exit: 4}) {
		t.Errorf("got %+v, %v, want exit 4", rep, err)
	}
}

func TestSilenceKills(t *testing.T) {
	const limit = time.Second
	check := func(t *testing.T, h *Handle, terminated bool, pids map[string]int) {
		t.Helper()
		rep, err := h.Wait()
		silent := rep.Silent
		rep.Silent = 0
		if want := (Report{Exit: 137, Signal: 9, Terminated: terminated}); err != nil || rep != want || silent < limit {
			t.Errorf("got %+v, %v, silent for %v; want %+v and at least %v", rep, err, silent, want, limit)
		}
		for what, pid := range pids {
			gone(t, what, pid)
		}
	}
	t.Run("when no beat ever comes", func(t *testing.T) {
		h, out := launch(t)
		must(t, h.Run(t.Context(), withBeat(spec(sh(stubborn)...), limit)))
		check(t, h, false, family(t, h.Group(), out))
	})
	t.Run("without a SIGTERM before", func(t *testing.T) {
		h, out := launch(t)
		must(t, h.Run(t.Context(), withBeat(spec(sh("trap 'echo saw TERM; exit 0' TERM; while :; do sleep 0.01; done")...), limit)))
		check(t, h, false, nil)
		if out.String() != "" {
			t.Errorf("output %q", out.String())
		}
	})
	t.Run("in the grace period of a terminate too", func(t *testing.T) {
		h, out := launch(t)
		s := withBeat(spec(sh(stubborn)...), limit)
		s.KillAfter = time.Hour
		must(t, h.Run(t.Context(), s))
		stop := keepBeating(h, limit/8)
		pids := family(t, h.Group(), out)
		h.Terminate()
		passes(t, 2*limit)
		for what, pid := range pids {
			if p, err := readProc(pid); err != nil || p.dead() {
				t.Errorf("%s died although beats came", what)
			}
		}
		stop()
		check(t, h, true, pids)
	})
	t.Run("what a command that has ended left behind", func(t *testing.T) {
		h, out := launch(t)
		s := withBeat(spec(sh(`(trap '' TERM; echo left; while :; do sleep 0.05; done) & read x < "$1"`)...), limit)
		fifo := filepath.Join(t.TempDir(), "fifo")
		must(t, syscall.Mkfifo(fifo, 0o600))
		s.Args = append(s.Args, []byte("sh"), []byte(fifo))
		s.KillAfter = time.Hour
		must(t, h.Run(t.Context(), s))
		<-out.lines // it ignores SIGTERM now
		must(t, os.WriteFile(fifo, []byte("x\n"), 0))
		rep, err := h.Wait()
		if err != nil || rep.Exit != 0 || rep.Silent < limit {
			t.Errorf("got %+v, %v, want exit 0 and a silence", rep, err)
		}
	})
	t.Run("after a freeze of the supervisor and the command, whatever waits in the pipe", func(t *testing.T) {
		h, out := launch(t)
		must(t, h.Run(t.Context(), withBeat(spec(sh(stubborn)...), limit)))
		stop := keepBeating(h, limit/8)
		pids := family(t, h.Group(), out)
		must(t, syscall.Kill(-h.Group().ID, syscall.SIGSTOP))
		waitState(t, h.Group().ID, 'T')
		passes(t, 2*limit)
		_, err := h.control.Write([]byte("BBTBBB"))
		must(t, err)
		must(t, syscall.Kill(-h.Group().ID, syscall.SIGCONT))
		check(t, h, false, pids)
		stop()
	})
}

func TestSpecThatWaitedTooLongStartsNothing(t *testing.T) {
	const limit = 300 * time.Millisecond
	tests := map[string]time.Duration{"since Run": 0, "since before Run": Now() - limit}
	for name, since := range tests {
		t.Run(name, func(t *testing.T) {
			h, out := launch(t)
			must(t, syscall.Kill(h.Group().ID, syscall.SIGSTOP))
			waitState(t, h.Group().ID, 'T')
			s := withBeat(spec("echo", "hello"), limit)
			s.Since = since
			must(t, h.Run(t.Context(), s))
			if since == 0 {
				passes(t, limit)
			}
			_, err := h.control.Write([]byte{beat})
			must(t, err)
			must(t, syscall.Kill(h.Group().ID, syscall.SIGCONT))
			rep, err := h.Wait()
			if err != nil || !rep.Transient || !strings.Contains(rep.Error, "not started: the daemon was silent for") || out.String() != "" {
				t.Errorf("got %+v, %v, output %q", rep, err, out.String())
			}
		})
	}
}

func TestBeatStorm(t *testing.T) {
	h, out := launch(t)
	s := withBeat(spec(sh("trap 'sleep 0.5; echo bye; exit 7' TERM; echo ready 0; while :; do sleep 0.05; done")...), 10*time.Second)
	must(t, h.Run(t.Context(), s))
	quit := make(chan struct{})
	var storm sync.WaitGroup
	for range 4 {
		storm.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					h.Beat()
				}
			}
		})
	}
	out.pids(t, "ready")
	for range 100 {
		h.Terminate()
	}
	rep, err := h.Wait()
	if want := (Report{Exit: 7, Terminated: true}); err != nil || rep != want || !strings.HasSuffix(out.String(), "bye\n") {
		t.Errorf("got %+v, %v, output %q, want %+v", rep, err, out.String(), want)
	}
	close(quit) // it went on after Wait
	storm.Wait()
	h.Beat()
	h.Terminate()
}

func TestFullPipeBlocksNobody(t *testing.T) {
	h, out := launch(t)
	must(t, h.Run(t.Context(), spec(sh("trap '' TERM; echo ready 0; while :; do sleep 0.05; done")...)))
	out.pids(t, "ready")
	must(t, syscall.Kill(h.Group().ID, syscall.SIGSTOP))
	waitState(t, h.Group().ID, 'T')
	must(t, h.control.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := h.control.Write([]byte(strings.Repeat("B", 1<<20))); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	must(t, h.control.SetWriteDeadline(time.Time{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Beat()
		h.Terminate()
		h.Terminate()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("blocked")
	}
	must(t, syscall.Kill(h.Group().ID, syscall.SIGCONT))
	rep, err := h.Wait()
	if want := (Report{Exit: 137, Signal: 9, Terminated: true}); err != nil || rep != want {
		t.Errorf("got %+v, %v, want %+v", rep, err, want)
	}
	<-done
}

func TestListener(t *testing.T) {
	const limit = time.Hour // of the fake clock; poll's own never gets there
	setup := func(t *testing.T) (*os.File, *atomic.Int64, <-chan order) {
		r, w, err := os.Pipe()
		must(t, err)
		var now atomic.Int64
		now.Store(int64(time.Hour))
		l := listener{fd: int(r.Fd()), limit: limit, heard: time.Hour, checked: time.Hour, clock: func() time.Duration { return time.Duration(now.Load()) }}
		out, ended := make(chan order), make(chan struct{})
		go func() {
			defer close(ended)
			l.run(out)
		}()
		t.Cleanup(func() {
			_ = w.Close()
			for {
				select {
				case <-out:
				case <-ended:
					_ = r.Close()
					return
				}
			}
		})
		return w, &now, out
	}
	t.Run("a beat that is read after a gap counts as of before it", func(t *testing.T) {
		w, now, out := setup(t)
		now.Add(int64(limit))
		_, err := w.Write([]byte("BTB"))
		must(t, err)
		if o := <-out; o != (order{orderSilent, limit}) {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("a shorter gap is counted whole", func(t *testing.T) {
		w, now, out := setup(t)
		now.Add(int64(limit - 1))
		_, err := w.Write([]byte("BT")) // counts as of the beginning
		must(t, err)
		if o := <-out; o != (order{kind: orderTerminate}) {
			t.Errorf("got %+v", o)
		}
		now.Add(1)
		_, err = w.Write([]byte("x")) // only to wake it up
		must(t, err)
		if o := <-out; o != (order{orderSilent, limit}) {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("beats in time go on without end, and other bytes mean nothing", func(t *testing.T) {
		w, now, out := setup(t)
		for range 100 {
			now.Add(int64(limit / 3))
			_, err := w.Write([]byte("xBT"))
			must(t, err)
			if o := <-out; o != (order{kind: orderTerminate}) {
				t.Fatalf("got %+v", o)
			}
		}
	})
	t.Run("a closed pipe is told after what came before", func(t *testing.T) {
		w, _, out := setup(t)
		_, err := w.Write([]byte("TB"))
		must(t, err)
		must(t, w.Close())
		if o := <-out; o != (order{kind: orderTerminate}) {
			t.Errorf("got %+v", o)
		}
		if o := <-out; o != (order{kind: orderOrphaned}) {
			t.Errorf("got %+v", o)
		}
	})
}
