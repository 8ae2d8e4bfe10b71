package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

func newHTTP(t *testing.T, o HTTPOptions) turns.Action {
	t.Helper()
	act, err := NewHTTP(o)
	must(t, err)
	t.Cleanup(func() { _ = act.(io.Closer).Close() })
	return act
}

// seen is a request as a test server saw it.
type seen struct {
	*http.Request
	body string
}

// record serves requests and hands them to the test.
func record(t *testing.T, answer http.HandlerFunc) (*httptest.Server, <-chan seen) {
	t.Helper()
	requests := make(chan seen, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- seen{r, string(b)}
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s, requests
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

// httpRequests are requests as the server should see them.
var httpRequests = []struct {
	name    string
	opts    HTTPOptions
	change  func(*turns.Attempt)
	method  string
	path    string
	headers map[string]string // "" = must be missing
	body    string
}{
	{
		name: "the payload is the body, byte for byte", method: "POST", path: "/", body: `{"id": 9007199254740993, "name": "<Ann>"}`,
		headers: map[string]string{
			"Content-Type": "application/json", "Idempotency-Key": "orders:ship:o-1", "User-Agent": "triggerd", "Triggerd-Hops": "3",
			"Traceparent": "", "Accept-Encoding": "gzip",
		},
	},
	{
		name: "bytes keep their type", method: "POST", path: "/", body: "\x00\xff",
		change:  func(a *turns.Attempt) { a.Event.ContentType, a.Event.Payload = "image/x", []byte("\x00\xff") },
		headers: map[string]string{"Content-Type": "image/x"},
	},
	{
		name: "an object as input becomes JSON", method: "POST", path: "/", body: `{"n":18446744073709551615}`,
		change: func(a *turns.Attempt) {
			a.Input, a.HasInput = map[string]any{"n": uint64(18446744073709551615)}, true
		},
		headers: map[string]string{"Content-Type": "application/json"},
	},
	{
		name: "a text as input is text", method: "POST", path: "/", body: "hi",
		change:  func(a *turns.Attempt) { a.Input, a.HasInput = "hi", true },
		headers: map[string]string{"Content-Type": typeText},
	},
	{
		name: "bytes as input have the event's type", method: "POST", path: "/", body: "\xff",
		change:  func(a *turns.Attempt) { a.Input, a.HasInput, a.Event.ContentType = []byte("\xff"), true, "" },
		headers: map[string]string{"Content-Type": typeBytes},
	},
	{
		name: "no input, no body", method: "POST", path: "/", body: "",
		change:  func(a *turns.Attempt) { a.Input, a.HasInput = nil, true },
		headers: map[string]string{"Content-Type": "", "Content-Length": ""},
	},
	{
		name: "GET has no body", opts: HTTPOptions{Method: "get"}, method: "GET", path: "/", body: "",
		headers: map[string]string{"Content-Type": ""},
	},
	{
		name: "GET has one if it is asked for", opts: HTTPOptions{Method: "GET", Body: ptr("x")}, method: "GET", path: "/", body: "x",
		headers: map[string]string{"Content-Type": typeText},
	},
	{
		name: "templates", method: "PUT", path: "/o/o-1?n=9007199254740993", body: `{"who": "<Ann>"}`,
		opts: HTTPOptions{
			Method: "PUT", URL: "/o/${{ event.id }}?n=${{ event.payload.id }}", Body: ptr(`{"who": "${{ input.name }}"}`),
			Headers: map[string]string{
				"authorization": "Bearer ${{ secrets.tok }}", "idempotency-key": "mine", "User-agent": "me/1", "host": "shop.example", "X-Try": "${{ turn.attempt }}",
			},
		},
		headers: map[string]string{
			"Authorization": "Bearer s3cret-value", "Idempotency-Key": "mine", "User-Agent": "me/1", "X-Try": "3", "Content-Type": "application/json",
		},
	},
	{
		name: "a trace is handed on", method: "POST", path: "/", body: `{"id": 9007199254740993, "name": "<Ann>"}`,
		change: func(a *turns.Attempt) {
			a.Event.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
		},
		headers: map[string]string{"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "a=1"},
	},
	{
		name: "a broken trace is not", method: "POST", path: "/", body: `{"id": 9007199254740993, "name": "<Ann>"}`,
		change:  func(a *turns.Attempt) { a.Event.Headers = map[string]string{"traceparent": "x", "tracestate": "a=1"} },
		headers: map[string]string{"Traceparent": "", "Tracestate": ""},
	},
	{
		name: "an id that no header holds is encoded", method: "POST", path: "/", body: `{"id": 9007199254740993, "name": "<Ann>"}`,
		change:  func(a *turns.Attempt) { a.Key.EventID = "a\r\nX-Evil: 1 é%" },
		headers: map[string]string{"Idempotency-Key": "orders:ship:a%0D%0AX-Evil: 1 %C3%A9%25", "X-Evil": ""},
	},
}

func TestHTTPRequest(t *testing.T) {
	for _, tt := range httpRequests {
		t.Run(tt.name, func(t *testing.T) {
			srv, requests := record(t, nil)
			tt.opts.URL = srv.URL + tt.opts.URL
			tt.opts.Secrets = secretsOf(map[string]string{"tok": "s3cret-value"})
			a := attempt()
			if tt.change != nil {
				tt.change(a)
			}
			o := newHTTP(t, tt.opts).Run(t.Context(), a)
			wantOutcome(t, o, triggerd.Done, "")
			got := <-requests
			if got.Method != tt.method || got.URL.String() != tt.path || got.body != tt.body {
				t.Errorf("got %s %s %q, want %s %s %q", got.Method, got.URL, got.body, tt.method, tt.path, tt.body)
			}
			for name, want := range tt.headers {
				if v := got.Header.Get(name); v != want && name != "Content-Length" {
					t.Errorf("header %s: %q, want %q", name, v, want)
				}
			}
			if want := tt.opts.Headers["host"]; want != "" && got.Host != want {
				t.Errorf("host %q, want %q", got.Host, want)
			}
		})
	}
}

func TestHTTPStatus(t *testing.T) {
	for code := range 600 {
		if code < 200 {
			continue // 1xx are no answers
		}
		want := triggerd.Dead
		switch {
		case code == 418 || code == 202: // listed below
			want = triggerd.Retry
		case code < 300:
			want = triggerd.Done
		case code == 408 || code == 425 || code == 429 || code >= 500:
			want = triggerd.Retry
		}
		act, err := NewHTTP(HTTPOptions{URL: "http://x.example/", RetryStatus: []int{418, 202}})
		must(t, err)
		h := act.(*httpAction)
		resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: &http.Request{}}
		o := h.response(&run{}, resp)
		if o.Verb != want || o.Result.Status != code {
			t.Errorf("%d: got %s with status %d, want %s", code, o.Verb, o.Result.Status, want)
		}
		if (o.Cause == "") != (want == triggerd.Done) || o.Cause != "" && !strings.Contains(o.Cause, fmt.Sprintf("HTTP %d", code)) {
			t.Errorf("%d: cause %q", code, o.Cause)
		}
	}
}

func TestHTTPRetryAfterIsHandedOn(t *testing.T) {
	srv, _ := record(t, status(503, "Retry-After", "7"))
	o := newHTTP(t, HTTPOptions{URL: srv.URL}).Run(t.Context(), attempt())
	wantOutcome(t, o, triggerd.Retry, "HTTP 503 Service Unavailable")
	if o.RetryAfter != 7*time.Second {
		t.Errorf("retry after %v", o.RetryAfter)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := map[string]time.Duration{
		"":                              0,
		" 120 ":                         2 * time.Minute,
		"0":                             0,
		"-5":                            0,
		"1.5":                           0,
		"soon":                          0,
		"86401":                         24 * time.Hour,
		"99999999999999999999999":       24 * time.Hour,
		"Mon, 30 Nov 2026 12:01:00 GMT": time.Minute,
		"Mon, 30 Nov 2026 11:00:00 GMT": 0,
		"Fri, 31 Dec 2027 00:00:00 GMT": 24 * time.Hour,
	}
	for value, want := range tests {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

func TestHTTPResponseIsBounded(t *testing.T) {
	t.Run("what fits is kept", func(t *testing.T) {
		srv, _ := record(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok":true}`)
		})
		o := newHTTP(t, HTTPOptions{URL: srv.URL}).Run(t.Context(), attempt())
		if r := o.Result; r.Status != 200 || r.ContentType != "application/json" || string(r.Output) != `{"ok":true}` || r.Bytes != 11 || r.Cut {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("what does not is cut, and an endless answer is not read to its end", func(t *testing.T) {
		srv, _ := record(t, func(w http.ResponseWriter, r *http.Request) {
			chunk := bytes.Repeat([]byte("x"), 1<<16)
			for r.Context().Err() == nil {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		o := newHTTP(t, HTTPOptions{URL: srv.URL, MaxResponse: 100}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Done, "")
		if r := o.Result; len(r.Output) != 100 || !r.Cut || r.Bytes < 100 {
			t.Errorf("kept %d of %d, cut %v", len(r.Output), r.Bytes, r.Cut)
		}
	})
	t.Run("one that breaks off does not change the verdict", func(t *testing.T) {
		srv, _ := record(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "part")
		})
		o := newHTTP(t, HTTPOptions{URL: srv.URL}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Done, "")
		if r := o.Result; string(r.Output) != "part" || !r.Cut {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("a connection is used again after a small rest", func(t *testing.T) {
		srv, requests := record(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 20<<10))
		})
		act := newHTTP(t, HTTPOptions{URL: srv.URL, MaxResponse: 10})
		act.Run(t.Context(), attempt())
		act.Run(t.Context(), attempt())
		if a, b := <-requests, <-requests; a.RemoteAddr != b.RemoteAddr {
			t.Errorf("connections from %s and %s", a.RemoteAddr, b.RemoteAddr)
		}
	})
}

func TestHTTPIsEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		cause error
		want  string
	}{
		"by a time-out":  {turns.ErrTimeout, "timed out after"},
		"by an operator": {turns.ErrCancelled, turns.ErrCancelled.Error()},
		"by a shutdown":  {turns.ErrShutdown, turns.ErrShutdown.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := ending(t)
			srv, _ := record(t, func(_ http.ResponseWriter, r *http.Request) {
				stop(tt.cause)
				<-r.Context().Done()
			})
			wantOutcome(t, newHTTP(t, HTTPOptions{URL: srv.URL}).Run(ctx, attempt()), triggerd.Retry, tt.want)
		})
	}
	t.Run("within the body of a 2xx: it was accepted", func(t *testing.T) {
		ctx, stop := ending(t)
		srv, _ := record(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		act := newHTTP(t, HTTPOptions{URL: srv.URL})
		h := act.(*httpAction)
		h.client.Transport = answered{h.transport, func() { stop(turns.ErrTimeout) }}
		o := act.Run(ctx, attempt())
		wantOutcome(t, o, triggerd.Done, "")
		if !o.Result.Cut {
			t.Error("the output does not count as cut")
		}
	})
}

// answered calls then once the header of an answer is there.
type answered struct {
	http.RoundTripper
	then func()
}

func (a answered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(r)
	a.then()
	return resp, err
}

func TestHTTPTLSAndHTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	trust := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	act := newHTTP(t, HTTPOptions{URL: srv.URL, ConfigureTransport: func(tr *http.Transport) {
		tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		tr.TLSClientConfig.RootCAs = trust
	}})
	o := act.Run(t.Context(), attempt())
	wantOutcome(t, o, triggerd.Done, "")
	if string(o.Result.Output) != "HTTP/2.0" {
		t.Errorf("spoke %s", o.Result.Output)
	}
}

func TestHTTPManyAtOnce(t *testing.T) {
	srv, requests := record(t, nil)
	act := newHTTP(t, HTTPOptions{URL: srv.URL, Body: ptr("${{ event.id }}")})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			a := attempt()
			a.Event.ID = fmt.Sprint(i)
			wantOutcome(t, act.Run(t.Context(), a), triggerd.Done, "")
		})
	}
	wg.Wait()
	bodies := map[string]bool{}
	for range 64 {
		bodies[(<-requests).body] = true
	}
	if len(bodies) != 64 || act.NeedsRunning() {
		t.Errorf("%d different bodies", len(bodies))
	}
}

func TestPanicIsDead(t *testing.T) {
	b := base{secrets: secretsOf(map[string]string{"tok": "s3cret value/1"})}
	o := b.attempt(t.Context(), attempt(), func(r *run) triggerd.Outcome {
		v, err := r.secret("tok")
		must(t, err)
		panic(errors.New("boom\nwith " + v + " and s3cret%20value%2F1 or s3cret+value%2F1"))
	})
	wantOutcome(t, o, triggerd.Dead, "the action panicked: boom with [redacted] and [redacted] or [redacted]")
}

func TestInterruptedNamesAPlainDeadline(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	o := (&base{}).attempt(ctx, attempt(), func(*run) triggerd.Outcome { panic("ran") })
	wantOutcome(t, o, triggerd.Retry, "timed out after 0s")
}
