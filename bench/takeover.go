package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/triggerd/triggerd/console"
)

// probes is how many events are posted after a kill: enough that about half belong to what the dead daemon owned.
const probes = 64

// The connections, enough of each kind that both daemons own some. Those of "stuck" are its threads, too.
var (
	stuckHooks = numbered("s", 24)
	probeHooks = numbered("p", 8)
)

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// target is what the actions call: /block answers when the measurement is over, /probe takes the time of each event.
type target struct {
	url  string
	web  *http.Server
	over chan struct{}

	mu   sync.Mutex
	seen map[string]time.Time
}

func newTarget() (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + l.Addr().String(), over: make(chan struct{}), seen: map[string]time.Time{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/block", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-t.over:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/probe", func(_ http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if id := r.URL.Query().Get("id"); t.seen[id].IsZero() {
			t.seen[id] = time.Now()
		}
	})
	t.web = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.web.Serve(l) }()
	return t, nil
}

func (t *target) close() { close(t.over); _ = t.web.Close() }

// effects is when the first and the last effect of so many events were; false while some are missing.
func (t *target) effects(n int) (first, last time.Time, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.seen {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last, len(t.seen) >= n
}

// blocked is a configuration whose trigger "stuck" runs one turn of each thread, which does not end, while the rest is queued, all over the partitions;
// "probe" runs freely.
func (t *target) blocked() string {
	var hooks strings.Builder
	for _, name := range slices.Concat(stuckHooks, probeHooks) {
		fmt.Fprintf(&hooks, "  %s: { webhook: { verify: { scheme: none } } }\n", name)
	}
	return "connections:\n" + hooks.String() + fmt.Sprintf(`triggers:
  stuck: { connection: [%[2]s], thread: event.connection, run: { http: { url: "%[1]s/block", method: POST, body: x } } }
  probe: { connection: [%[3]s], run: { http: { url: "%[1]s/probe?id=${{ event.id }}", method: POST, body: x } } }
`, t.url, strings.Join(stuckHooks, ", "), strings.Join(probeHooks, ", "))
}

// measureTakeovers prints how long the survivor of two daemons takes, by what was unfinished.
func measureTakeovers(ctx context.Context, s settings, backlogs []int) error {
	fmt.Printf("takeover of two daemons' work after kill -9 of the one that owns more; times from the kill, with the 5 s of silence,\n"+
		"which count from its last heartbeat, up to 1 s before the kill; %d events posted to the survivor after it\n", probes)
	fmt.Printf("%-12s %12s %14s %14s %14s %14s %14s\n", "unfinished", "of the dead", "declared dead", "all 32 owned", "after silence", "first effect", "last effect")
	for _, n := range backlogs {
		if err := takeover(ctx, s, n); err != nil {
			return fmt.Errorf("%d unfinished turns: %w", n, err)
		}
	}
	return nil
}

func takeover(ctx context.Context, s settings, backlog int) error {
	t, err := newTarget()
	if err != nil {
		return err
	}
	f, err := startServer(ctx, s)
	if err != nil {
		t.close()
		return err
	}
	defer f.stop()
	defer t.close() // before the daemons stop, which wait for their turns
	if err := f.startDaemons(ctx, 2, t.blocked()); err != nil {
		return err
	}
	s.events, s.size = backlog, 64
	if _, err := load(ctx, s, f.urls(stuckHooks...)...); err != nil {
		return err
	}
	if err := f.opened(ctx, backlog); err != nil {
		return err
	}
	dead, share, err := f.larger(ctx)
	if err != nil {
		return err
	}
	victim := f.daemons[dead]
	f.daemons = append(f.daemons[:dead:dead], f.daemons[dead+1:]...)
	pid := victim.cmd.Process.Pid
	killed := time.Now()
	victim.stop(syscall.SIGKILL)
	silent, owned, err := f.survive(ctx, t, pid)
	if err != nil {
		return err
	}
	first, last, _ := t.effects(probes)
	since := func(at time.Time) string { return at.Sub(killed).Round(10 * time.Millisecond).String() }
	fmt.Printf("%-12d %12s %14s %14s %14s %14s %14s\n", backlog, fmt.Sprintf("%d of %d", share, partitions), since(silent), since(owned),
		owned.Sub(silent).Round(10*time.Millisecond), since(first), since(last))
	return nil
}

// opened waits until the daemon's lists count every event as an unfinished turn.
func (f *fleet) opened(ctx context.Context, backlog int) error {
	client, err := console.Dial("unix:" + f.daemons[0].socket)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return until(ctx, 5*time.Minute, "all turns are open", func() bool {
		ts, err := client.Triggers(ctx)
		n := 0
		for _, t := range ts {
			n += t.Queued + t.Running
		}
		return err == nil && n >= backlog
	})
}

// larger is the index of the daemon that owns more, and how many partitions it owns.
func (f *fleet) larger(ctx context.Context) (index, owned int, err error) {
	list, err := f.daemons[0].list(ctx)
	if err != nil {
		return 0, 0, err
	}
	most := -1
	for _, info := range list {
		for i, d := range f.daemons {
			// On a tie of partitions it is the one with more connections.
			if weight := info.Partitions*100 + len(info.Connections); info.PID == d.cmd.Process.Pid && weight > most {
				most, index, owned = weight, i, info.Partitions
			}
		}
	}
	return index, owned, nil
}

// survive posts the probes to the only daemon left and waits for their effects. It returns when that daemon took the killed one for dead,
// and when it owned all partitions.
func (f *fleet) survive(ctx context.Context, t *target, killed int) (silent, owned time.Time, err error) {
	left := f.daemons[0]
	posted := make(chan error, 1)
	go func() {
		s := f.s
		s.events, s.size = probes, 64
		_, err := load(ctx, s, f.urls(probeHooks...)...)
		posted <- err
	}()
	err = until(ctx, 3*time.Minute, "the survivor owns everything and the new events take effect", func() bool {
		list, err := left.list(ctx)
		if err != nil {
			return false
		}
		alive := false
		for _, info := range list {
			alive = alive || info.PID == killed && !info.Dead
			if info.PID == left.cmd.Process.Pid && info.Partitions == partitions && owned.IsZero() {
				owned = time.Now()
			}
		}
		if !alive && silent.IsZero() {
			silent = time.Now()
		}
		_, _, all := t.effects(probes)
		return all && !owned.IsZero() && !silent.IsZero()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "the survivor took the other for dead:", !silent.IsZero(), "and owned everything:", !owned.IsZero())
		return silent, owned, err
	}
	return silent, owned, <-posted
}
