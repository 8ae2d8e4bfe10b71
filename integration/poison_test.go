package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// P7: of ten events one always fails. It is tried four times, the others are done before its last attempt ends, also the one behind it in its
// thread goes on, and after the fix a retry brings it back.
func TestPoisonStepsAside(t *testing.T) {
	w := newWorld(t)
	var fixed atomic.Bool
	others := make(chan struct{})
	tries := 0
	w.status = func(body string) int {
		if body == "poison" && !fixed.Load() {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}
	w.gate = func(body string) {
		if body != "poison" {
			return
		}
		if tries++; tries == 4 { // attempts of one turn come one after the other
			select {
			case <-others:
			case <-time.After(15 * time.Second):
			}
		}
	}
	in := newInstallation(t, "", oneHook(w, `thread: 'event.payload == "poison" || event.payload == "behind" ? "same" : event.id'`,
		"retry: { attempts: 4, backoff: { initial: 50ms, max: 200ms } }"))
	p := in.run()
	in.mustPost("in", "poison", []byte("poison"))
	in.mustPost("in", "behind", []byte("behind"))
	for n := range 8 {
		in.mustPost("in", fmt.Sprint("e", n), []byte("fine"))
	}
	in.awaitTurns("work", "eight are done beside the poison", 10*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 8 })
	if n := len(w.byKey()); n > 9 {
		t.Errorf("%d turns took effect: the one behind the poison did not wait for its thread", n)
	}
	close(others)
	turns := in.awaitTurns("work", "all final", 10*time.Second, allFinal(10))
	if count(turns, "done") != 9 || count(turns, "dead") != 1 {
		t.Fatalf("turns %+v, want 9 done and 1 dead", turns)
	}
	dead := in.detail("in:work:poison")
	if dead.State != "dead" || dead.Attempt != 4 || w.byKey()["in:work:poison"] != 4 {
		t.Errorf("%s after %d attempts and %d calls, want it dead after 4", dead.State, dead.Attempt, w.byKey()["in:work:poison"])
	}
	if !strings.Contains(dead.Error, "500") || !strings.Contains(dead.Error, "attempt 4 of 4") || dead.Outcome == nil || dead.Outcome.Status != 500 {
		t.Errorf("cause %q, outcome %+v: want the status and the attempts", dead.Error, dead.Outcome)
	}
	if string(shown(&dead.Event)) != "poison" {
		t.Errorf("the dead turn shows the event as %q", shown(&dead.Event))
	}
	var list []console.TurnInfo
	in.commandJSON(&list, "turns", "list", "--state", "dead")
	if len(list) != 1 || list[0].Hash != dead.Hash {
		t.Errorf("turns list --state dead: %+v", list)
	}

	fixed.Store(true)
	p.kill()
	in.run() // it is brought back from the ledger, not from memory
	var again console.TurnInfo
	in.commandJSON(&again, "turns", "retry", dead.Hash)
	in.awaitTurns("work", "the retry is done", 10*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 10 })
	if turn := in.detail(again.Hash); turn.ReplayOf != dead.Key || turn.State != "done" || turn.Attempt != 1 {
		t.Errorf("retry %+v, want it done at the first attempt, linked to %s", turn.TurnInfo, dead.Key)
	}
	if turn := in.detail(dead.Hash); turn.State != "dead" {
		t.Errorf("the first turn is %s after the retry, want it left as it was", turn.State)
	}
	t.Logf("9 done, 1 dead after 4 attempts: %s", dead.Error)
}

// The endpoint's Retry-After is a floor under the backoff, with 503 and with 429.
func TestRetryAfterIsAFloor(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			w := newWorld(t)
			var calls atomic.Int32
			slow := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Retry-After", "1")
				w.serve(rw, r)
			}))
			t.Cleanup(slow.Close)
			w.URL = slow.URL
			w.status = func(string) int {
				if calls.Add(1) == 1 {
					return status
				}
				return http.StatusOK
			}
			in := newInstallation(t, "", oneHook(w, "retry: { attempts: 2, backoff: { initial: 1ms, max: 5ms } }"))
			in.run()
			in.mustPost("in", "e", []byte("x"))
			waiting := in.awaitTurns("work", "it waits", 5*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "failed") == 1 })[0]
			if waiting.NotBefore == nil || !strings.Contains(waiting.Error, fmt.Sprint(status)) {
				t.Errorf("turn %+v: want it to say until when it waits, and why", waiting)
			}
			in.awaitTurns("work", "it is done", 5*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 1 })
			es := w.all()
			if len(es) != 2 || es[1].begin.Sub(es[0].end) < time.Second {
				t.Fatalf("calls %v: want two of them, 1 s apart", es)
			}
			t.Logf("second attempt %s after the first", es[1].begin.Sub(es[0].end))
		})
	}
}
