package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/triggerd/triggerd"
)

// effects is the world outside: what actions did to it, as a dead daemon's cannot any more.
type effects struct {
	mu       sync.Mutex
	life     int
	last     map[string]int    // per lane, the highest number that had its effect
	times    map[string]int    // per event
	busy     map[string]string // per lane, who runs
	finished map[string]bool   // told as done
	reached  chan struct{}     // closed when the life has done its share
	left     int
	bad      []string
}

func (w *effects) begin(left int) (life int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life++
	w.busy, w.left, w.reached = map[string]string{}, left, make(chan struct{})
	return w.life
}

func (w *effects) complain(format string, args ...any) {
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

// action makes the action of one life.
func (w *effects) action(life int) *auto {
	return &auto{f: func(a *Attempt) triggerd.Outcome {
		lane, id := a.Thread, a.Key.EventID
		var n int
		_, _ = fmt.Sscanf(id, lane+"-%d", &n)
		w.mu.Lock()
		if w.life != life {
			w.mu.Unlock()
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "dead"}
		}
		if other := w.busy[lane]; other != "" {
			w.complain("%s starts while %s runs", id, other)
		}
		if w.finished[id] {
			w.complain("%s runs again after its end was told", id)
		}
		w.busy[lane] = id
		w.mu.Unlock()
		fail := rand.N(5) == 0 && a.Number < 4
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.life != life {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "dead"}
		}
		w.busy[lane] = ""
		if w.left--; w.left == 0 {
			close(w.reached)
		}
		if fail {
			return triggerd.Outcome{Verb: triggerd.Retry, Cause: "bad luck"}
		}
		if n < w.last[lane] || n > w.last[lane]+1 {
			w.complain("%s has its effect after number %d", id, w.last[lane])
		}
		w.last[lane] = max(n, w.last[lane])
		w.times[id]++
		return triggerd.Outcome{Verb: triggerd.Done}
	}}
}

// P3 and P6: killed again and again under load, with what was not acknowledged opened again, each event has one finished turn,
// each lane keeps its order, and nothing runs again after its end was recorded.
func TestCrashesUnderLoad(t *testing.T) {
	const lanes, perLane, crashes = 20, 25, 5
	w := &effects{last: map[string]int{}, times: map[string]int{}, finished: map[string]bool{}}
	r := &rig{T: t, store: t.TempDir()}
	next := 1 // the inbox's position: what was acknowledged
	for life := range crashes + 1 {
		last := life == crashes
		id := w.begin(lanes * perLane / (crashes + 2))
		spec := trigger("a", w.action(id)) // the last life's goroutines still hold theirs
		spec.Retry.Attempts = 1000         // those of a process that is as good as dead do not count
		r.specs = map[string]*Spec{"a": spec}
		r.start()
		l := r.life
		ctx, kill := context.WithCancel(t.Context())
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			for ; next <= perLane; next++ {
				var os []triggerd.Opening
				for lane := range lanes {
					os = append(os, ask("a", fmt.Sprintf("L%d-%d", lane, next), fmt.Sprint("L", lane)))
				}
				if l.engine.Open(ctx, os) != nil {
					return // it comes again in the next life
				}
			}
		}()
		w.mu.Lock()
		reached := w.reached
		w.mu.Unlock()
		if !last {
			recv(t, reached, "the next crash")
			w.mu.Lock()
			w.life++ // the process is gone: no effect from here on
			w.mu.Unlock()
			r.crash()
			kill()
			w.tell(l)
		}
		recv(t, fed, "the inbox")
		kill()
	}
	r.until("all is done", func() bool { return r.engine.Counts()["a"] == Counts{} })
	repeats := 0
	for lane := range lanes {
		for n := 1; n <= perLane; n++ {
			id := fmt.Sprintf("L%d-%d", lane, n)
			if w.times[id] == 0 {
				t.Errorf("%s never had its effect", id)
			}
			repeats += w.times[id] - 1
			r.state("a", id, Done)
		}
	}
	if got := r.tally(); got[Done] != lanes*perLane || len(got) != 1 {
		t.Errorf("turns by state: %v", got)
	}
	if most := crashes * 16; repeats > most { // what ran at a crash
		t.Errorf("%d repeats, at most %d were under way", repeats, most)
	}
	for _, b := range w.bad {
		t.Error(b)
	}
	t.Logf("%d turns, %d crashes, %d repeats", lanes*perLane, crashes, repeats)
}

// tell notes which ends a dead life had told.
func (w *effects) tell(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		select {
		case i := <-l.finals:
			w.finished[i.Key.EventID] = true
		default:
			return
		}
	}
}
