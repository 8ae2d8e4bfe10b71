package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/turns"
)

// fleet is several daemons on one NATS. The test's goroutine starts, stops and asks them; senders may post from any.
type fleet struct {
	t       *testing.T
	members []*member
	started []*process    // every process that ever belonged to it
	next    atomic.Uint64 // the member that the next post goes to first
}

// member is one daemon of a fleet: an installation of its own, with the same connections and triggers.
type member struct {
	*installation
	f      *fleet
	p      *process
	frozen bool
}

// newFleet starts n daemons and returns when they know each other; nats is the nats section of each, body is what follows it.
func newFleet(t *testing.T, n int, nats func(i int) string, body string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for i := range n {
		f.members = append(f.members, &member{installation: newInstallation(t, nats(i), body), f: f})
	}
	for _, m := range f.members {
		m.begin()
	}
	for _, m := range f.members {
		m.p.awaitReady()
	}
	f.agreed()
	return f
}

// on is the nats section of every daemon of a fleet on one server.
func on(url string) func(int) string { return func(int) string { return "  url: " + url } }

// answers reports whether the daemon runs and is not frozen.
func (m *member) answers() bool {
	select {
	case <-m.p.done:
		return false
	default:
		return !m.frozen
	}
}

func (m *member) freeze() { m.frozen = true; m.p.signal(syscall.SIGSTOP) }
func (m *member) thaw()   { m.p.signal(syscall.SIGCONT); m.frozen = false }

func (m *member) begin() {
	m.t.Helper()
	m.p = m.start()
	m.f.started = append(m.f.started, m.p)
}

// restart starts a daemon that has ended, and waits until it serves.
func (m *member) restart() { m.t.Helper(); m.begin(); m.p.awaitReady() }

// declaredDead counts how often a daemon took another one for dead.
func (f *fleet) declaredDead() (n int) {
	for _, p := range f.started {
		n += len(p.lines(saidDead))
	}
	return n
}

// daemons is what `daemons list` says, asked of this daemon; nil when it does not answer in time.
func (m *member) daemons() []console.DaemonInfo {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list, err := m.client().Daemons(ctx)
	if err != nil {
		return nil
	}
	return list
}

// runner is the daemon that has written last on a turn.
func (f *fleet) runner(key string) *member {
	f.t.Helper()
	h := f.other(nil).detail(key).History
	m := f.byID()[h[len(h)-1].Daemon]
	if m == nil {
		f.t.Fatalf("no daemon of these runs %s: %+v", key, h)
	}
	return m
}

// random is some daemon that answers.
func (f *fleet) random() *member {
	f.t.Helper()
	var able []*member
	for _, m := range f.members {
		if m.answers() {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		f.t.Fatal("no daemon is left")
	}
	return able[rand.N(len(able))]
}

// other is a daemon other than m that answers.
func (f *fleet) other(m *member) *member {
	f.t.Helper()
	for _, other := range f.members {
		if other != m && other.answers() {
			return other
		}
	}
	f.t.Fatal("no other daemon is left")
	return nil
}

// agreed waits until every daemon lists all of them and says the same of each, all partitions and connections have one owner, and all have their share.
func (f *fleet) agreed() {
	f.t.Helper()
	alive := map[int]bool{}
	for _, m := range f.members {
		alive[m.p.cmd.Process.Pid] = true
	}
	cfg, err := configs.Load(configs.Options{Files: []string{f.members[0].config}, AllowUnset: true})
	if err != nil {
		f.t.Fatal(err)
	}
	connections := append(slices.Collect(maps.Keys(cfg.Connections)), "manual")
	for _, tr := range cfg.Triggers {
		if slices.Contains(tr.Connection, "triggerd") && !slices.Contains(connections, "triggerd") {
			connections = append(connections, "triggerd")
		}
	}
	slices.Sort(connections)
	var views []string
	defer func() {
		if f.t.Failed() {
			f.t.Logf("who owns what, as each daemon sees it:\n%s", strings.Join(views, "\n"))
		}
	}()
	await(f.t, "all daemons agree on who they are and who owns what", 25*time.Second, func() bool {
		views = nil
		settled := true
		for _, m := range f.members {
			view, ok := shared(m.daemons(), alive, connections)
			views = append(views, view)
			settled = settled && ok && view == views[0]
		}
		return settled
	})
}

// shared says who owns what in a list of daemons, and whether these processes have all of it, each connection and partition once and all about as much.
func shared(list []console.DaemonInfo, alive map[int]bool, connections []string) (view string, ok bool) {
	var owned []string
	var parts, conns []int
	all := 0
	for _, d := range list {
		all += d.Partitions
		owned = append(owned, d.Connections...)
		if alive[d.PID] && d.Age < 5 && !d.Dead && !d.Leaving {
			parts, conns = append(parts, d.Partitions), append(conns, len(d.Connections))
			view += fmt.Sprintf("%s: %d of %v, history %v; ", d.ID, d.Partitions, d.Connections, d.History)
		}
	}
	slices.Sort(owned)
	level := func(n []int) bool { return slices.Max(n)-slices.Min(n) <= 1 }
	return view, len(parts) == len(alive) && all == turns.Partitions && slices.Equal(owned, connections) && level(parts) && level(conns)
}

// patient gives up on a daemon that does not answer sooner than a webhook's sender would, but later than a daemon that lives may need.
var patient = &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// postPatiently sends one event to one daemon. The status is 0 when there was no answer.
func (m *member) postPatiently(id string, body []byte) (a answer) { return m.postTo("in", id, body) }

func (m *member) postTo(connection, id string, body []byte) (a answer) {
	req, err := http.NewRequest(http.MethodPost, "http://"+m.addr+"/hooks/"+connection, bytes.NewReader(body))
	if err != nil {
		return answer{Error: err.Error()}
	}
	req.Header.Set("Idempotency-Key", id)
	res, err := patient.Do(req)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	_ = json.Unmarshal(b, &a)
	a.Status = res.StatusCode
	return a
}

// deliver posts an event to one daemon after the other until one accepts it, for a minute. Every daemon gets its turn to be the first.
func (f *fleet) deliver(id string, body []byte) (refusals int, err error) {
	var last answer
	at := f.next.Add(1)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); refusals++ {
		last = f.members[(at+uint64(refusals))%uint64(len(f.members))].postPatiently(id, body)
		if last.Status == http.StatusAccepted {
			return refusals, nil
		}
		if last.Status != 0 && last.Status != http.StatusServiceUnavailable {
			return refusals, fmt.Errorf("post %s: %+v, want 202 or 503", id, last)
		}
		if (refusals+1)%len(f.members) == 0 {
			pauseSender()
		}
	}
	return refusals, fmt.Errorf("post %s: not accepted in a minute: %+v", id, last)
}

// flow is events that are posted over many threads while something is done to the daemons: a steady trickle, and more on demand.
// Each thread sends its events one after the other.
type flow struct {
	f      *fleet
	tokens chan struct{}
	stop   func() // ends the senders and waits for them; safe to repeat

	mu       sync.Mutex
	accepted map[string]time.Time // event id: when
	numbers  map[string]int       // event id: its number in its thread
	refusals int
}

// startFlow sends an event each `every`, from any of the threads that is not waiting for an answer.
func startFlow(f *fleet, threads int, every time.Duration) *flow {
	return startFlowFrom(f, 0, threads, every)
}

// startFlowFrom is startFlow for threads that are numbered from first on, so that two flows have no event in common.
func startFlowFrom(f *fleet, first, threads int, every time.Duration) *flow {
	l := &flow{f: f, tokens: make(chan struct{}, 10_000), accepted: map[string]time.Time{}, numbers: map[string]int{}}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.burst(1)
			case <-ended:
				return
			}
		}
	})
	for thread := first; thread < first+threads; thread++ {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.tokens:
				case <-ended:
					return
				}
				if !l.send(thread, n) {
					return
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { close(ended); wg.Wait() })
	f.t.Cleanup(l.stop)
	return l
}

func (l *flow) send(thread, n int) bool {
	id, body := numbered(thread, n)
	refusals, err := l.f.deliver(id, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals += refusals
	if err != nil {
		l.f.t.Error(err)
		return false
	}
	l.accepted[id], l.numbers[id] = time.Now(), n
	return true
}

// burst lets n more events go at once.
func (l *flow) burst(n int) {
	for range n {
		select {
		case l.tokens <- struct{}{}:
		default: // the senders are stuck, and fail by themselves
		}
	}
}

// acceptedSince counts the events that were accepted after a moment.
func (l *flow) acceptedSince(at time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, when := range l.accepted {
		if when.After(at) {
			n++
		}
	}
	return n
}

// ids are the accepted events, with their numbers.
func (l *flow) ids() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := map[string]int{}
	for id, n := range l.numbers {
		ids[id] = n
	}
	return ids
}

// newEffect waits for the effect of an event that was accepted after a moment: somebody owns the work.
func (l *flow) newEffect(log *effectLog, after time.Time, limit time.Duration) {
	l.f.t.Helper()
	await(l.f.t, "an event that came after the blow takes effect", limit, func() bool {
		recent := log.since(after)
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(recent, func(a attempt) bool {
			id, ok := eventOf(a.key)
			return ok && l.accepted[id].After(after)
		})
	})
}
