package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// fiveAtOnce posts the same event id five times at once and returns how many answers were not marked duplicate.
func fiveAtOnce(t *testing.T, in *installation, id string) (fresh int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for n := range 5 {
		wg.Go(func() {
			<-start
			a, err := in.post("in", id, fmt.Appendf(nil, `{"try":%d}`, n))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || a.Status != http.StatusAccepted || a.Event != id {
				t.Errorf("post: %+v, %v", a, err)
			}
			if !a.Duplicate {
				fresh++
			}
		})
	}
	close(start)
	wg.Wait()
	return fresh
}

// P2: one turn per event and trigger, at once, after the stream's duplicate window, and after restarts of both kinds.
func TestSameEventIsOneTurn(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", oneHook(w)+fmt.Sprintf(`
  beside:
    connection: in
    run: { http: { url: %s/effect } }
`, w.URL))
	p := in.run()
	posts, asNew := 0, 0
	expect := func(when string, fresh int) {
		t.Helper()
		got := fiveAtOnce(t, in, "same")
		if got != fresh {
			t.Errorf("%s: %d of 5 answers are not marked duplicate, want %d", when, got, fresh)
		}
		posts, asNew = posts+5, asNew+got
		for _, trigger := range []string{"work", "beside"} {
			in.awaitTurns(trigger, "one done turn "+when, 10*time.Second, func(ts []console.TurnInfo) bool {
				if len(ts) > 1 {
					t.Fatalf("%s: trigger %s has %d turns", when, trigger, len(ts))
				}
				return count(ts, "done") == 1
			})
		}
	}
	first := time.Now()
	expect("at once", 1)
	if n := in.metric("triggerd_events_duplicate_total"); n != 4 {
		t.Errorf("%v duplicates are counted, want 4", n)
	}
	// The streams' own window, 100 ms, is not what the promise stands on.
	await(t, "the duplicate window is over", 5*time.Second, func() bool { return time.Since(first) > time.Second })
	expect("after the window", 0)
	p.kill()
	p = in.run()
	expect("after kill -9", 0)
	p.stop()
	in.run()
	expect("after a restart", 0)
	if n := len(w.all()); n != 2 {
		t.Errorf("%d effects, want one for each trigger", n)
	}
	t.Logf("%d posts of one event id: %d answered as new, one turn for each of 2 triggers, %d effects", posts, asNew, len(w.all()))
}

// An explicit retry is a turn of its own, linked to the first, and what is asked for is not swallowed as a duplicate.
func TestRetryIsNotADuplicate(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", oneHook(w))
	p := in.run()
	in.mustPost("in", "same", []byte("the payload"))
	first := in.awaitTurns("work", "a done turn", 10*time.Second, allFinal(1))[0]

	var again [2]console.TurnInfo
	in.commandJSON(&again[0], "turns", "retry", first.Hash)
	in.awaitTurns("work", "two done turns", 10*time.Second, allFinal(2))
	p.kill()
	in.run()
	in.commandJSON(&again[1], "turns", "retry", first.Key)
	turns := in.awaitTurns("work", "three done turns", 10*time.Second, allFinal(3))
	if a := in.mustPost("in", "same", []byte("the payload")); !a.Duplicate {
		t.Error("after retries, the event itself is new again")
	}
	for n, turn := range again {
		want := fmt.Sprintf("in:work:same#%d", n+1)
		if turn.Key != want || turn.ReplayOf != first.Key || turn.EventID != "same" {
			t.Errorf("retry %d: %+v, want key %s, linked to %s", n+1, turn, want, first.Key)
		}
		if turn := in.detail(turn.Hash); turn.State != "done" || turn.ReplayOf != first.Key || turn.Event.Text == nil || *turn.Event.Text != "the payload" {
			t.Errorf("retry %d: %+v, want it done, linked, with the payload", n+1, turn)
		}
	}
	if count(turns, "done") != 3 {
		t.Errorf("turns %+v, want three done", turns)
	}
	for _, key := range []string{"in:work:same", "in:work:same#1", "in:work:same#2"} {
		if n := w.byKey()[key]; n != 1 {
			t.Errorf("%d effects with the idempotency key %s, want 1", n, key)
		}
	}
	if n := len(w.all()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}
