package webhook

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

func TestRouter(t *testing.T) {
	b := setup(t, nil)
	request := func(method, path string) answer { return b.do(httptest.NewRequest(method, path, nil)) }

	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodOptions} {
		if a := request(method, "/hooks/in"); a.status != 405 || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %+v %v", method, a, a.header)
		}
	}
	for _, path := range []string{"/hooks/other", "/hooks/", "/hooks/in/", "/hooks/in/x", "/hook/in", "/"} {
		if a := request(http.MethodPost, path); a.status != 404 {
			t.Errorf("POST %s: %+v", path, a)
		}
	}
	b.router.Set(nil)
	if a := request(http.MethodPost, "/hooks/in"); a.status != 404 {
		t.Errorf("after the route is gone: %+v", a)
	}
	if b.mem.Calls() != 0 {
		t.Errorf("stored %v", b.mem.Events())
	}
}

func TestTheTableIsACopy(t *testing.T) {
	b := setup(t, nil)
	h, err := New(Options{Scheme: None, MaxBody: 1, Emit: b.mem})
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]*Handler{"in": h}
	b.router.Set(routes)
	delete(routes, "in")
	if a := b.post("x"); a.status != http.StatusAccepted {
		t.Errorf("answer %+v", a)
	}
}

// Promise P17: reload under load gives no 404 and drops no request.
func TestReloadUnderLoad(t *testing.T) {
	b := setup(t, nil)
	srv := b.serve(nil)
	fresh := func() *Handler {
		h, err := New(Options{Connection: "in", Scheme: None, MaxBody: 1 << 20, Emit: b.mem})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	const senders, each = 8, 50
	var bad atomic.Int64
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				resp, err := srv.Client().Post(srv.URL+"/hooks/in", "text/plain", strings.NewReader("x"))
				if err != nil {
					bad.Add(1)
					continue
				}
				if resp.StatusCode != http.StatusAccepted {
					bad.Add(1)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	reloads := 0
	for running := true; running; reloads++ {
		b.router.Set(map[string]*Handler{"in": fresh(), "extra": fresh()})
		b.router.Set(map[string]*Handler{"in": fresh()})
		select {
		case <-done:
			running = false
		default:
		}
	}
	if n := bad.Load(); n != 0 || len(b.mem.Events()) != senders*each {
		t.Errorf("%d bad answers, %d events stored, %d reloads", n, len(b.mem.Events()), reloads)
	}
}

// gate holds every append until it is opened.
type gate struct {
	sources.Emitter
	entered, open chan struct{}
}

func (g *gate) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	close(g.entered)
	<-g.open
	return g.Emitter.Emit(ctx, ev)
}

func TestARequestUnderWayFinishesOnItsHandler(t *testing.T) {
	g := &gate{entered: make(chan struct{}), open: make(chan struct{})}
	b := setup(t, func(o *Options) { g.Emitter, o.Emit = o.Emit, g })
	answered := make(chan answer, 1)
	go func() { answered <- b.post("x", "Idempotency-Key: slow") }()
	<-g.entered
	b.router.Set(nil)
	close(g.open)
	if a := <-answered; a.status != http.StatusAccepted || b.only().ID != "slow" {
		t.Errorf("answer %+v", a)
	}
}

func TestASenderThatHangsUpAfterTheBodyIsStored(t *testing.T) {
	g := &gate{entered: make(chan struct{}), open: make(chan struct{})}
	b := setup(t, func(o *Options) { g.Emitter, o.Emit = o.Emit, g })
	ctx, hangUp := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/in", strings.NewReader("x"))
	answered := make(chan answer, 1)
	go func() { answered <- b.do(r) }()
	<-g.entered
	hangUp()
	close(g.open)
	if a := <-answered; a.status != http.StatusAccepted || a.Event != b.only().ID {
		t.Errorf("answer %+v", a)
	}
}

// nowhere is a store that costs nothing.
type nowhere struct{ sources.Emitter }

func (nowhere) Emit(context.Context, triggerd.Event) (triggerd.Receipt, error) {
	return triggerd.Receipt{Seq: 1}, nil
}

// discard is an http.ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header               { return d.header }
func (d discard) Write(b []byte) (int, error)       { return len(b), nil }
func (d discard) WriteHeader(int)                   {}
func (d discard) WriteString(s string) (int, error) { return len(s), nil }

// BenchmarkRequest is what one request of 1 KiB costs apart from HTTP itself and the store.
func BenchmarkRequest(b *testing.B) {
	bench := setup(b, func(o *Options) {
		o.Emit, o.Scheme, o.Secrets = nowhere{}, Bearer, func() ([]string, error) { return []string{"a-secret-of-some-length"}, nil }
	})
	body := strings.Repeat("x", 1<<10)
	r := httptest.NewRequest(http.MethodPost, "/hooks/in", nil)
	r.ContentLength = int64(len(body))
	for name, value := range map[string]string{
		"Authorization": "Bearer a-secret-of-some-length", "Content-Type": "application/json", "Idempotency-Key": "0123456789", "User-Agent": "bench/1", "Accept-Encoding": "gzip",
	} {
		r.Header.Set(name, value)
	}
	w := discard{http.Header{}}
	reader := strings.NewReader(body)
	r.Body = io.NopCloser(reader)
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		bench.router.ServeHTTP(w, r)
	}
}
