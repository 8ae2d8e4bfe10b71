package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a webhook "in" over a store in memory, behind a router.
type bench struct {
	t      testing.TB
	mem    *sourcetest.Memory
	status *sources.Status
	log    *bytes.Buffer
	router *Router
}

// setup makes a webhook that anybody may send to, unless change says otherwise.
func setup(t testing.TB, change func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, mem: sourcetest.NewMemory("in"), status: new(sources.Status), log: new(bytes.Buffer), router: NewRouter()}
	o := Options{
		Connection: "in", Scheme: None, MaxBody: 1 << 20, Emit: sources.Observe(b.mem, b.status), Status: b.status,
		Log: zerolog.New(zerolog.SyncWriter(b.log)),
	}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.router.Set(map[string]*Handler{"in": h})
	return b
}

// answer is what a sender gets back.
type answer struct {
	status    int
	header    http.Header
	Event     string
	Duplicate bool
	Error     string
	Cause     string
}

func (b *bench) do(r *http.Request) answer {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.router.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header()}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Header().Get("Content-Type") != "application/json" {
		b.t.Fatalf("the answer %q is not JSON: %v", w.Body, err)
	}
	return a
}

// post sends a body with headers given as "Name: value".
func (b *bench) post(body string, headers ...string) answer {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hooks/in?q=1&q=2", strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return b.do(r)
}

// only returns the one stored event.
func (b *bench) only() triggerd.Event {
	b.t.Helper()
	evs := b.mem.Events()
	if len(evs) != 1 {
		b.t.Fatalf("%d events are stored, want 1", len(evs))
	}
	return evs[0]
}

func program(t *testing.T, src string) *expr.Program {
	t.Helper()
	p, err := expr.CompileKey(src, expr.Request)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAccepted(t *testing.T) {
	t.Run("a repeat is a duplicate", func(t *testing.T) {
		b := setup(t, nil)
		for i := range 3 {
			if a := b.post("x", "Idempotency-Key: k1"); a.status != http.StatusAccepted || a.Event != "k1" || a.Duplicate != (i > 0) {
				t.Errorf("answer %d: %+v", i, a)
			}
		}
		if s := b.status.Snapshot(); s.Events != 1 || s.Duplicates != 2 || s.Rejected != 0 {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("without an id each request is an event", func(t *testing.T) {
		b := setup(t, nil)
		if one, two := b.post("x").Event, b.post("x").Event; one == two || len(one) != 26 {
			t.Errorf("ids %q and %q", one, two)
		}
	})
	t.Run("an id is answered as it was sent", func(t *testing.T) {
		b := setup(t, nil)
		for _, id := range []string{`a"b\c`, "<é>&\u2028", "a b"} {
			if a := b.post("", "Idempotency-Key: "+id); a.Event != id {
				t.Errorf("sent %q, answered %q", id, a.Event)
			}
		}
	})
	t.Run("the time comes from ce-time if it is one", func(t *testing.T) {
		b := setup(t, nil)
		b.post("", "Idempotency-Key: 1", "ce-time: 2026-03-01T11:00:00.5+01:00")
		b.post("", "Idempotency-Key: 2", "ce-time: yesterday")
		evs := b.mem.Events()
		if !evs[0].Time.Equal(time.Date(2026, 3, 1, 10, 0, 0, 5e8, time.UTC)) || !evs[1].Time.Equal(evs[1].Received) || evs[1].Time.IsZero() {
			t.Errorf("times %v and %v", evs[0].Time, evs[1].Time)
		}
	})
	t.Run("hops come from the sender", func(t *testing.T) {
		b := setup(t, nil)
		b.post("", "Triggerd-Hops: 8")
		if got := b.only().Hops; got != 8 {
			t.Errorf("hops %d", got)
		}
	})
	t.Run("nothing is logged", func(t *testing.T) {
		b := setup(t, nil)
		b.post("private")
		if b.log.Len() != 0 {
			t.Errorf("log: %s", b.log)
		}
	})
}

func TestIDAndType(t *testing.T) {
	tests := []struct {
		name, id, typ    string // expressions
		headers          []string
		wantID, wantType string
	}{
		{"Idempotency-Key first", "", "", []string{"ce-id: c", "X-GitHub-Delivery: g", "webhook-id: w", "Idempotency-Key: i"}, "i", DefaultType},
		{"then webhook-id", "", "", []string{"ce-id: c", "X-GitHub-Delivery: g", "webhook-id: w"}, "w", DefaultType},
		{"then X-GitHub-Delivery", "", "", []string{"ce-id: c", "X-GitHub-Delivery: g", "X-GitHub-Event: push"}, "g", "push"},
		{"then ce-id", "", "", []string{"ce-id: c", "ce-type: order.created", "X-GitHub-Event: push"}, "c", "order.created"},
		{"an empty header is absent", "", "", []string{"Idempotency-Key: ", "webhook-id: w"}, "w", DefaultType},
		{"the longest id", "", "", []string{"ce-id: " + strings.Repeat("x", 1024)}, strings.Repeat("x", 1024), DefaultType},
		{"an expression wins", "request.body.order", "'order.' + request.body.kind", []string{"Idempotency-Key: i", "ce-type: t"}, "17", "order.new"},
		{"an empty result falls back", "request.body.?none.orValue('')", "''", []string{"Idempotency-Key: i", "ce-type: t"}, "i", "t"},
		{
			"expressions see headers, query, path and method", "request.headers['x-a'] + request.query.q + request.path + request.method", "",
			[]string{"X-A: a"}, "a1/hooks/inPOST", DefaultType,
		},
		{"expressions see no credentials", "'got ' + string('authorization' in request.headers)", "", []string{"Authorization: Bearer s"}, "got false", DefaultType},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, func(o *Options) {
				if tt.id != "" {
					o.ID = program(t, tt.id)
				}
				if tt.typ != "" {
					o.Type = program(t, tt.typ)
				}
			})
			a := b.post(`{"order": 17, "kind": "new"}`, append(tt.headers, "Content-Type: application/json")...)
			if ev := b.only(); ev.ID != tt.wantID || ev.Type != tt.wantType || a.Event != tt.wantID {
				t.Errorf("id %q, type %q, answered %q", ev.ID, ev.Type, a.Event)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*Options)
		headers []string
		status  int
		text    string
	}{
		{"an id over 1024 bytes", nil, []string{"Idempotency-Key: " + strings.Repeat("x", 1025)}, 400, "1024"},
		{"an id that is not UTF-8", nil, []string{"webhook-id: \xff"}, 400, "UTF-8"},
		{"an id with a control character", nil, []string{"ce-id: a\x01b"}, 400, "control"},
		{"a bad id before a good one", nil, []string{"Idempotency-Key: \xff", "ce-id: ok"}, 400, "UTF-8"},
		{"a type over 256 bytes", nil, []string{"ce-type: " + strings.Repeat("x", 257)}, 400, "event type has 257"},
		{"hops below zero", nil, []string{"Triggerd-Hops: -1"}, 400, "Triggerd-Hops"},
		{"an id expression that fails", func(o *Options) { o.ID = program(t, "request.body.missing") }, nil, 400, "missing"},
		{"a type expression that fails", func(o *Options) { o.Type = program(t, "request.body.items") }, nil, 400, "`type`"},
		{"a body over the limit", func(o *Options) { o.MaxBody = 4 }, nil, 413, "over 4 bytes, the webhook's max_body"},
		{"too long a chain of turns", nil, []string{"Triggerd-Hops: 9"}, 422, "limit is 8"},
		{"an endless chain of turns", nil, []string{"Triggerd-Hops: 99999999999999999999"}, 422, "limit is 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, tt.change)
			a := b.post(`{"word": "hunter2", "items": ["hunter2"]}`, append(tt.headers, "Content-Type: application/json")...)
			if a.status != tt.status || !strings.Contains(a.Error, tt.text) {
				t.Errorf("answer %+v, want %d with %q", a, tt.status, tt.text)
			}
			if (a.Cause == "loop") != (tt.status == 422) {
				t.Errorf("cause %q", a.Cause)
			}
			if strings.Contains(a.Error+b.log.String(), "hunter2") {
				t.Errorf("payload in the answer %q or in the log %s", a.Error, b.log)
			}
			if len(b.mem.Events()) != 0 || b.status.Snapshot().Rejected != 1 {
				t.Errorf("stored %v, status %+v", b.mem.Events(), b.status.Snapshot())
			}
			if !strings.Contains(b.log.String(), `"connection":"in"`) {
				t.Errorf("the log does not name the connection: %s", b.log)
			}
		})
	}
}

func TestStoreFailures(t *testing.T) {
	for err, want := range map[error]int{
		fmt.Errorf("%w: disk is full", triggerd.ErrUnavailable):            503,
		fmt.Errorf("%w: epoch 7", triggerd.ErrFenced):                      503,
		context.DeadlineExceeded:                                           503,
		errors.New("surprise at /var/lib/x"):                               500,
		fmt.Errorf("%w: 9 bytes, the limit is 8", triggerd.ErrTooLarge):    413,
		fmt.Errorf("%w: id is taken by a ghost", triggerd.ErrInvalidEvent): 400,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			b := setup(t, nil)
			b.mem.FailNext(1, err)
			a := b.post("x", "Idempotency-Key: k")
			if a.status != want || (a.header.Get("Retry-After") == "1") != (want == 503) {
				t.Errorf("answer %+v %v, want %d", a, a.header, want)
			}
			if strings.Contains(a.Error, "/var/lib") || strings.Contains(a.Error, "disk") {
				t.Errorf("the sender reads our insides: %q", a.Error)
			}
			if a := b.post("x", "Idempotency-Key: k"); a.status != 202 || a.Duplicate {
				t.Errorf("the retry: %+v", a)
			}
		})
	}
	t.Run("an event that was stored after all is a duplicate on the retry", func(t *testing.T) {
		b := setup(t, nil)
		b.mem.LoseAnswer(1, triggerd.ErrUnavailable)
		if a := b.post("x", "Idempotency-Key: k"); a.status != 503 {
			t.Errorf("answer %+v", a)
		}
		if a := b.post("x", "Idempotency-Key: k"); a.status != 202 || !a.Duplicate {
			t.Errorf("the retry: %+v", a)
		}
	})
	t.Run("a store that does not answer is given up before 2 s are over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, func(o *Options) { o.Emit = stuck{} })
			began := time.Now()
			a := b.post("x")
			if took := time.Since(began); a.status != 503 || a.header.Get("Retry-After") != "1" || took != emitTimeout {
				t.Errorf("answer %+v after %v", a, took)
			}
		})
	})
	t.Run("a lasting failure is logged once a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, nil)
			b.mem.FailNext(300, triggerd.ErrUnavailable)
			for range 300 {
				b.post("x")
				time.Sleep(10 * time.Millisecond) // fake time
			}
			if n := strings.Count(b.log.String(), "\n"); n != 3 {
				t.Errorf("%d lines in 3 s", n)
			}
		})
	})
}

// stuck is a store that never answers.
type stuck struct{ sources.Emitter }

func (stuck) Emit(ctx context.Context, _ triggerd.Event) (triggerd.Receipt, error) {
	<-ctx.Done()
	return triggerd.Receipt{}, ctx.Err()
}

func TestNewRefusesBadOptions(t *testing.T) {
	mem := sourcetest.NewMemory("in")
	for want, o := range map[string]Options{
		"verify.scheme":  {Scheme: "", MaxBody: 1, Emit: mem},
		"verify.secrets": {Scheme: Bearer, MaxBody: 1, Emit: mem},
		"max_body":       {Scheme: None, Emit: mem},
		"emitter":        {Scheme: None, MaxBody: 1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want an error with %q", err, want)
		}
	}
}
