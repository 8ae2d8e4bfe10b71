package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

const sentinel = "payload-text-that-belongs-in-no-log"

// burst posts n events of this connection from 16 clients; all must be accepted.
func burst(t *testing.T, in *installation, connection string, n int) {
	t.Helper()
	ids := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for id := range ids {
				body := fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, id, sentinel)
				a, err := in.post(connection, fmt.Sprint("event-", id), body, "Content-Type", "application/json", "X-Custom", sentinel)
				if err != nil || a.Status != http.StatusAccepted {
					t.Errorf("post %d: %+v, %v", id, a, err)
				}
			}
		})
	}
	for id := range n {
		ids <- id
	}
	close(ids)
	wg.Wait()
}

// perMessage counts log lines; each must be one JSON object.
func perMessage(t *testing.T, log string) (counts map[string]int, lines int) {
	t.Helper()
	counts = map[string]int{}
	for line := range strings.Lines(log) {
		var entry struct {
			Level, Message, Trigger, Cause string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Message == "" || entry.Level == "" {
			t.Errorf("log line %q: %v", line, err)
		}
		counts[strings.Join(strings.Fields(entry.Message+" "+entry.Trigger+" "+entry.Cause), " ")]++
		lines++
	}
	return counts, lines
}

// noPayload wants neither payload nor header text in a log, nor an event's id.
func noPayload(t *testing.T, log string) {
	t.Helper()
	for _, word := range []string{sentinel, "event-1"} {
		if at := strings.Index(log, word); at >= 0 {
			t.Errorf("the log holds %q: %s", word, log[max(0, at-200):min(len(log), at+200)])
		}
	}
}

// P25: 2,000 events that all succeed are not worth a line each, and no payload text is in the log.
func TestBusyBurstIsQuiet(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", oneHook(w, "thread: event.payload.n % 50"))
	p := in.run()
	burst(t, in, "in", 2000)
	in.awaitTurns("work", "2,000 are done", 60*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == 2000 })
	p.stop()
	noPayload(t, p.log.String())
	counts, lines := perMessage(t, p.log.String())
	if lines > 5 {
		t.Errorf("%d lines for 2,000 events: %v", lines, counts)
	}
	t.Logf("2,000 events, start and stop: %d log lines, %d bytes", lines, len(p.log.String()))
}

// A failure that repeats is logged at most once a second for each cause: an endpoint that is down, an expression that fails
// on every event, and requests that are refused.
func TestRepeatedFailureIsLoggedOnceASecond(t *testing.T) {
	in := newInstallation(t, "", fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none }, max_body: 1000 } }
defaults: { triggers: { retry: { attempts: 2, backoff: { initial: 1ms, max: 5ms } } } }
triggers:
  down: { connection: in, run: { http: { url: "http://%s/nobody-listens" } } }
  bad-filter: { connection: in, filter: event.payload.missing.field == 1, run: { http: { url: "http://127.0.0.1:1" } } }
`, freeAddr(t)))
	p := in.run()
	began := time.Now()
	burst(t, in, "in", 500)
	for range 100 {
		if a, err := in.post("in", "", bytes.Repeat([]byte(sentinel), 100)); err != nil || a.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("a large body: %+v, %v", a, err)
		}
	}
	dead := in.awaitTurns("down", "500 are dead", 60*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "dead") == 500 })
	took := time.Since(began)
	p.stop()
	noPayload(t, p.log.String())
	counts, lines := perMessage(t, p.log.String())
	for what, n := range counts {
		if limit := int(took/time.Second) + 2; n > limit {
			t.Errorf("%d lines in %s say %q, want %d at most", n, took, what, limit)
		}
	}
	for _, want := range []string{"turn is dead down", "a trigger's expression failed on an event: no turn; see `triggerd explain` bad-filter", "webhook request refused body too large"} {
		if counts[want] == 0 {
			t.Errorf("nothing in the log says %q: %v", want, counts)
		}
	}
	t.Logf("500 events into a dead endpoint and a failing filter, 100 bodies too large: %d lines in %s; cause of a turn: %s", lines, took, dead[0].Error)
}
