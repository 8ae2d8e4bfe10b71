package integration

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempt is one call of the outside world by an action, from when it was asked until it answered or the caller had gone.
type attempt struct {
	key        string // idempotency key
	thread     string // "" = in no thread
	n          int    // number of the event within its thread
	begin, end time.Time
	cut        bool // the caller went away before the answer
}

// effectLog is the outside world: an http server that all daemons call, which outlives them and keeps every attempt.
// The body of a call is "<thread>/<number>".
type effectLog struct {
	*httptest.Server
	takes func(key string, nth int) time.Duration // how long the nth attempt of a key (from 0) takes; set before the first call

	mu       sync.Mutex
	begun    map[string]int // attempts of each key
	attempts []attempt      // in the order of their ends
	started  chan string    // the key of every attempt at its begin, for whoever listens
}

func newEffectLog(t *testing.T, takes func(key string, nth int) time.Duration) *effectLog {
	l := &effectLog{takes: takes, begun: map[string]int{}, started: make(chan string, 10_000)}
	l.Server = httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.Close)
	return l
}

func (l *effectLog) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller died while it sent: not an effect
	}
	thread, number, _ := strings.Cut(string(body), "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		http.Error(rw, "body: want thread/number", http.StatusBadRequest)
		return
	}
	a := attempt{key: r.Header.Get("Idempotency-Key"), thread: thread, n: n, begin: time.Now()}
	l.mu.Lock()
	nth := l.begun[a.key]
	l.begun[a.key]++
	l.mu.Unlock()
	l.started <- a.key
	select {
	case <-time.After(l.takes(a.key, nth)):
	case <-r.Context().Done():
		a.cut = true
	}
	a.end = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
}

// all returns a copy of the attempts that have ended, in the order of their begins.
func (l *effectLog) all() []attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	as := slices.Clone(l.attempts)
	slices.SortStableFunc(as, func(a, b attempt) int { return a.begin.Compare(b.begin) })
	return as
}

// since are the attempts that began after a moment and have ended.
func (l *effectLog) since(at time.Time) (as []attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.attempts {
		if a.begin.After(at) {
			as = append(as, a)
		}
	}
	return as
}

// of are the attempts of one key.
func (l *effectLog) of(key string) []attempt {
	return slices.DeleteFunc(l.all(), func(a attempt) bool { return a.key != key })
}

// keys counts the attempts of each key that have ended.
func (l *effectLog) keys() map[string]int {
	n := map[string]int{}
	for _, a := range l.all() {
		n[a.key]++
	}
	return n
}

// overlaps are pairs of attempts of one thread that ran at the same time. It wants attempts in the order of their begins.
func overlaps(attempts []attempt) (pairs [][2]attempt) {
	latest := map[string]attempt{} // of each thread, the one that ended last
	for _, a := range attempts {
		if a.thread == "" {
			continue
		}
		before, some := latest[a.thread]
		if some && a.begin.Before(before.end) {
			pairs = append(pairs, [2]attempt{before, a})
		}
		if !some || a.end.After(before.end) {
			latest[a.thread] = a
		}
	}
	return pairs
}

// inversions are pairs of first attempts of one thread where the later event came first.
func inversions(attempts []attempt) (pairs [][2]attempt) {
	seen, last := map[string]bool{}, map[string]attempt{}
	for _, a := range attempts {
		if a.thread == "" || seen[a.key] {
			continue
		}
		seen[a.key] = true
		if before, some := last[a.thread]; some && a.n < before.n {
			pairs = append(pairs, [2]attempt{before, a})
		}
		last[a.thread] = a
	}
	return pairs
}

// repeats are pairs of attempts of one key, one after the other.
func repeats(attempts []attempt) (pairs [][2]attempt) {
	last := map[string]attempt{}
	for _, a := range attempts {
		if before, some := last[a.key]; some {
			pairs = append(pairs, [2]attempt{before, a})
		}
		last[a.key] = a
	}
	return pairs
}

// longestGap is the longest time without the begin of an attempt between from and to.
func longestGap(attempts []attempt, from, to time.Time) (gap time.Duration) {
	last := from
	for _, a := range attempts {
		if a.begin.After(from) && a.begin.Before(to) {
			gap, last = max(gap, a.begin.Sub(last)), a.begin
		}
	}
	return max(gap, to.Sub(last))
}

// The measures themselves are held against a small history that has one of everything.
func TestEffectMeasures(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	history := []attempt{
		{key: "a0", thread: "a", n: 0, begin: at(0), end: at(10)},
		{key: "b0", thread: "b", n: 0, begin: at(5), end: at(100)},
		{key: "x", begin: at(6), end: at(50)},
		{key: "y", begin: at(7), end: at(50)}, // no thread: may overlap with x
		{key: "a2", thread: "a", n: 2, begin: at(10), end: at(20)},
		{key: "a1", thread: "a", n: 1, begin: at(20), end: at(30)}, // too late
		{key: "b1", thread: "b", n: 1, begin: at(40), end: at(45)}, // within b0
		{key: "b0", thread: "b", n: 0, begin: at(90), end: at(95)}, // within b0 and a repeat of it, but no inversion
	}
	names := func(pairs [][2]attempt) string {
		var s []string
		for _, p := range pairs {
			s = append(s, p[0].key+"-"+p[1].key)
		}
		return strings.Join(s, " ")
	}
	if got := names(overlaps(history)); got != "b0-b1 b0-b0" {
		t.Errorf("overlaps %q", got)
	}
	if got := names(inversions(history)); got != "a2-a1" {
		t.Errorf("inversions %q", got)
	}
	if got := names(repeats(history)); got != "b0-b0" {
		t.Errorf("repeats %q", got)
	}
	if got := longestGap(history, at(1), at(100)); got != 50*time.Millisecond {
		t.Errorf("longest gap %s", got)
	}
	if got := longestGap(history, at(30), at(300)); got != 210*time.Millisecond {
		t.Errorf("longest gap %s, want the one until the end", got)
	}
}

// A caller that goes away ends its attempt, which is kept as cut short.
func TestEffectLogSeesCallersGo(t *testing.T) {
	l := newEffectLog(t, func(key string, nth int) time.Duration { return time.Duration(1-nth) * time.Hour })
	call := func(c *http.Client) error {
		req, err := http.NewRequest(http.MethodPost, l.URL, strings.NewReader("t/7"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		res, err := c.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	if call(&http.Client{Timeout: 50 * time.Millisecond}) == nil {
		t.Fatal("the first attempt was answered")
	}
	await(t, "the end of the first attempt", 5*time.Second, func() bool { return len(l.of("k")) == 1 })
	if err := call(http.DefaultClient); err != nil {
		t.Fatal(err)
	}
	as := l.of("k")
	if len(as) != 2 || !as[0].cut || as[1].cut || as[1].n != 7 || as[1].thread != "t" || !maps.Equal(l.keys(), map[string]int{"k": 2}) {
		t.Errorf("attempts %+v", as)
	}
}
