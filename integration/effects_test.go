package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// effect is one call of the outside world by an action.
type effect struct {
	key   string // idempotency key
	body  string
	begin time.Time
	end   time.Time
}

// world is what http actions call: it outlives every daemon and keeps what happened, in order.
type world struct {
	*httptest.Server
	mu      sync.Mutex
	effects []effect
	status  func(body string) int // nil = 200
	gate    func(body string)     // nil = at once
}

func newWorld(t *testing.T) *world {
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller died while it sent: not an effect
	}
	e := effect{key: r.Header.Get("Idempotency-Key"), body: string(b), begin: time.Now()}
	if w.gate != nil {
		w.gate(e.body)
	}
	e.end = time.Now()
	w.mu.Lock()
	w.effects = append(w.effects, e)
	w.mu.Unlock()
	if w.status != nil {
		rw.WriteHeader(w.status(e.body))
	}
}

// all returns a copy of what has happened.
func (w *world) all() []effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]effect(nil), w.effects...)
}

// byKey counts effects for each idempotency key.
func (w *world) byKey() map[string]int {
	n := map[string]int{}
	for _, e := range w.all() {
		n[e.key]++
	}
	return n
}
