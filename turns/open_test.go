package turns

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

func TestOpenOnce(t *testing.T) {
	act := &auto{}
	r := setup(t, trigger("a", act))

	t.Run("again after it is done", func(t *testing.T) {
		r.openTurns(ask("a", "1", ""))
		r.want("1", Done)
		r.openTurns(ask("a", "1", ""))
	})
	t.Run("twice in one call", func(t *testing.T) {
		r.openTurns(ask("a", "2", ""), ask("a", "2", ""))
		r.want("2", Done)
	})
	t.Run("from many at once, with other turns around it", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				// Each two calls have a key in common and another order of them: none may wait for the other for ever.
				os := []triggerd.Opening{ask("a", "3", "L"), ask("a", fmt.Sprint("3-", i/2), "M"), ask("a", "4", "N")}
				if i%2 == 1 {
					os[0], os[2] = os[2], os[0]
				}
				r.openTurns(os...)
			})
		}
		wg.Wait()
		for range 10 {
			if i := r.final(); i.State != Done {
				t.Errorf("%s is %s", i.Key, i.State)
			}
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		r.restart()
		r.openTurns(ask("a", "1", ""), ask("a", "3", "L"), ask("a", "5", ""))
		for { // ends of the time before may be told again
			if i := r.final(); i.Key.EventID == "5" {
				break
			}
		}
		if got := r.engine.Stats().Duplicates; got != 2 {
			t.Errorf("%d duplicates counted, want 2", got)
		}
	})
	seen := map[string]int{}
	for _, id := range act.ran() {
		if seen[id]++; seen[id] > 1 {
			t.Errorf("event %s ran %d times", id, seen[id])
		}
	}
	if len(seen) != 13 {
		t.Errorf("%d events ran, want 13: %v", len(seen), seen)
	}
}

func TestOpenCountsDuplicates(t *testing.T) {
	r := setup(t, trigger("a", &auto{}))
	for range 5 {
		r.openTurns(ask("a", "1", ""))
	}
	r.want("1", Done)
	if got := r.engine.Stats(); got.Duplicates != 4 || got.Finals[Done] != 1 || got.Attempts != 1 {
		t.Errorf("stats %+v", got)
	}
}

func TestActionSeesTheTurn(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	t.Run("as it was opened", func(t *testing.T) {
		o := ask("a", "1", "L")
		o.Event.Payload = []byte("\x00\xff <&>\n")
		o.Event.Headers = map[string]string{"x": "<\u2028>"}
		o.Event.Cursor, o.Event.Hops = triggerd.Cursor("at 5"), 2
		o.Input, o.HasInput = map[string]any{"a": "b"}, true
		r.openTurns(o)
		c := act.next(t, "1")
		defer c.done()
		ev := c.Event
		if !bytes.Equal(ev.Payload, o.Event.Payload) || ev.Headers["x"] != "<\u2028>" || string(ev.Cursor) != "at 5" || ev.Hops != 2 || ev.Type != "x.y" {
			t.Errorf("event %+v", ev)
		}
		if m, ok := c.Input.(map[string]any); !ok || !c.HasInput || m["a"] != "b" {
			t.Errorf("input %#v", c.Input)
		}
		if c.Number != 1 || c.Thread != "L" || c.IdempotencyKey() != "c:a:1" || c.Trigger != "a" || c.Connection != "c" || c.Opened.IsZero() {
			t.Errorf("attempt %+v", c.Attempt)
		}
	})
	t.Run("from the ledger when it did not stay in memory", func(t *testing.T) {
		r.openTurns(ask("a", "2", ""))
		first := act.next(t, "2")
		first.fail("again") // a later attempt reads the turn back
		c := act.next(t, "2")
		if string(c.Event.Payload) != "payload of 2" || c.Number != 2 {
			t.Errorf("attempt %d of %q", c.Number, c.Event.Payload)
		}
		c.done()
	})
}

// Payloads and inputs that do not fit in a message come back byte for byte, before and after the end, and for a replay.
func TestLargeTurns(t *testing.T) {
	act := newManual()
	r := setup(t, trigger("a", act))
	big := bytes.Repeat([]byte("0123456789abcdef"), 50_000) // 800 KB
	o := ask("a", "1", "")
	o.Event.Payload, o.Input, o.HasInput = big, string(big[1:]), true
	r.openTurns(o)
	c := act.next(t, "1")
	if !bytes.Equal(c.Event.Payload, big) || c.Input != string(big[1:]) {
		t.Error("the first attempt sees something else")
	}
	c.out <- triggerd.Outcome{Verb: triggerd.Done, Result: triggerd.Result{Status: 200, Output: big[2:]}}
	for {
		if r.final().State == Done {
			break
		}
	}
	d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(d.Event.Payload, big) || d.Input != string(big[1:]) || !bytes.Equal(d.Output, big[2:]) {
		t.Error("the finished turn holds something else")
	}
	if d.Result.Bytes != int64(len(big)-2) || d.Result.Status != 200 {
		t.Errorf("result %+v", d.Result)
	}
	if _, err := r.engine.Retry(t.Context(), d.Hash); err != nil {
		t.Fatal(err)
	}
	c = act.next(t, "1")
	if !bytes.Equal(c.Event.Payload, big) || c.Input != string(big[1:]) || c.Key.Replay != 1 {
		t.Error("the replay sees something else")
	}
	c.done()
}

// An input that can never be stored makes a dead turn, and what comes after it goes on (P7, P8).
func TestOpenWhatCannotBeStored(t *testing.T) {
	act := &auto{}
	r := setup(t, trigger("a", act))
	o := ask("a", "no json", "L")
	o.Input, o.HasInput = func() {}, true
	r.openTurns(o, ask("a", "fine", "L"))
	got := map[string]Info{}
	for range 2 {
		i := r.final()
		got[i.Key.EventID] = i
	}
	if i := got["no json"]; i.State != Dead || !strings.Contains(i.Cause, "encode input") {
		t.Errorf("the bad one is %s (%s)", i.State, i.Cause)
	}
	if i := got["fine"]; i.State != Done {
		t.Errorf("the one behind it is %s (%s)", i.State, i.Cause)
	}
	if ran := act.ran(); len(ran) != 1 || ran[0] != "fine" {
		t.Errorf("ran %v", ran)
	}
}

// The server takes 64 KiB of headers in a message; an event's own may be longer in JSON, and come back all the same.
func TestLongHeaders(t *testing.T) {
	for name, size := range map[string]int{"in the body": 30 << 10, "in a blob": 260 << 10} {
		t.Run(name, func(t *testing.T) {
			act := newManual()
			r := setup(t, trigger("a", act))
			o := ask("a", "1", "")
			long := strings.Repeat("<\"\u00e9>", size/5)
			o.Event.Headers, o.Event.Cursor = map[string]string{"x-long": long}, triggerd.Cursor(long)
			r.openTurns(o)
			act.next(t, "1").fail("read it back")
			c := act.next(t, "1")
			if c.Event.Headers["x-long"] != long || string(c.Event.Cursor) != long || string(c.Event.Payload) != "payload of 1" {
				t.Error("the action sees something else")
			}
			c.done()
			r.want("1", Done)
			d, err := r.engine.Show(t.Context(), hashOf("a", "1"))
			if err != nil || d.Event.Headers["x-long"] != long || string(d.Event.Payload) != "payload of 1" {
				t.Errorf("the finished turn holds something else: %v", err)
			}
			r.restart()
			if _, err := r.engine.Retry(t.Context(), hashOf("a", "1")); err != nil {
				t.Fatal(err)
			}
			if c := act.next(t, "1"); c.Event.Headers["x-long"] != long {
				t.Error("the replay sees something else")
			} else {
				c.done()
			}
		})
	}
}

func TestCacheIsBoundedAndGivenBack(t *testing.T) {
	act := newManual()
	s := trigger("a", act)
	s.Limit = 1
	r := setup(t, s)
	const limit, size, n = 1 << 20, 48 << 10, 60
	r.engine.cacheMax = limit
	os := make([]triggerd.Opening, n)
	for i := range os {
		os[i] = ask("a", fmt.Sprint(i), "L")
		os[i].Event.Payload = make([]byte, size)
	}
	r.openTurns(os...)
	cached := func() int64 {
		r.engine.mu.Lock()
		defer r.engine.mu.Unlock()
		return r.engine.cached
	}
	if got := cached(); got > limit || got < limit-3*size { // the first one may be running
		t.Errorf("%d bytes are cached, the limit is %d", got, limit)
	}
	if err := r.engine.Cancel(t.Context(), hashOf("a", "5")); err != nil { // one that is cached
		t.Fatal(err)
	}
	for i := range os {
		if i != 5 {
			c := act.next(t, fmt.Sprint(i))
			if len(c.Event.Payload) != size {
				t.Fatalf("turn %d has %d bytes", i, len(c.Event.Payload))
			}
			c.done()
		}
	}
	r.until("all are final", func() bool { return r.engine.Counts()["a"] == Counts{} })
	if got := cached(); got != 0 {
		t.Errorf("%d bytes are still counted", got)
	}
}

// An opening whose caller gave up after it was stored is run all the same.
func TestOpenGivenUp(t *testing.T) {
	act := &auto{}
	r := setup(t, trigger("a", act))
	all := []*opening{}
	o := ask("a", "1", "")
	all = append(all, r.engine.opening(&o))
	mark := r.engine.mark()
	if err := r.engine.prepare(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if err := r.engine.openWave(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r.engine.abandon(all, mark) // as open does when gone ends between the wave and its sync
	if err := r.engine.Open(gone, []triggerd.Opening{ask("a", "2", "")}); err != nil {
		wantErr(t, err, triggerd.ErrUnavailable)
	}
	r.engine.mu.Lock()
	for i := range r.engine.lost {
		r.engine.lost[i].since = time.Now().Add(-lostAfter)
	}
	if told := r.engine.low.settled(); told > all[0].turn.openSeq {
		t.Errorf("the checkpoint would be at %d, past the lost turn at %d", told, all[0].turn.openSeq)
	}
	r.engine.mu.Unlock()
	signal(r.engine.tidy)
	for got := ""; got != "1"; {
		i := r.final()
		got = i.Key.EventID
	}
	r.until("the mark is gone", func() bool {
		r.engine.mu.Lock()
		defer r.engine.mu.Unlock()
		return len(r.engine.lost) == 0 && len(r.engine.low.marks) == 0
	})
}
