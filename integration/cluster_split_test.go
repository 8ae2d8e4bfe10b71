package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// afterElection is the longest time without an action from when the servers that are left have leaders: a successor comes within afterKill, and the
// consumers that it makes elect leaders as well.
const afterElection = afterKill + 12*time.Second

// splitCluster is a cluster whose servers reach each other through proxies, one for each pair and direction.
type splitCluster struct {
	*natsCluster
	links map[[2]int]*proxy // by who dials whom
}

// newSplitCluster starts n servers. They tell neither each other nor clients of any address but the proxies'.
func newSplitCluster(t *testing.T, n int) *splitCluster {
	t.Helper()
	c, addrs := &splitCluster{natsCluster: &natsCluster{t: t}, links: map[[2]int]*proxy{}}, freeAddrs(t, 3*n+1)
	nobody := addrs[3*n]
	for i := range n {
		var routes []string
		for j := range n {
			if j != i {
				p := newProxy(t, addrs[3*j+2])
				c.links[[2]int{i, j}] = p
				routes = append(routes, "nats://"+p.addr)
			}
		}
		node := &natsNode{t: t, name: fmt.Sprint("n", i), addr: addrs[3*i], monitor: addrs[3*i+1], log: &lockedBuffer{}}
		host, port, _ := net.SplitHostPort(node.addr)
		_, monitor, _ := net.SplitHostPort(node.monitor)
		node.args = []string{
			"-js", "-sd", t.TempDir(), "-n", node.name, "-a", host, "-p", port, "-m", monitor, "--no_advertise", "--cluster_advertise", nobody,
			"--cluster_name", "split", "--cluster", "nats://" + addrs[3*i+2], "--routes", strings.Join(routes, ","),
		}
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes {
		node.start()
		t.Cleanup(node.close)
	}
	c.awaitMeta()
	return c
}

// apart does something to every link between servers of different sides.
func (c *splitCluster) apart(do func(*proxy), sides ...[]int) {
	side := map[int]int{}
	for s, nodes := range sides {
		for _, i := range nodes {
			side[i] = s
		}
	}
	for pair, link := range c.links {
		if side[pair[0]] != side[pair[1]] {
			do(link)
		}
	}
}

func (c *splitCluster) heal() {
	for _, link := range c.links {
		link.restore()
	}
}

// others are the servers besides one.
func (c *splitCluster) others(i int) (others []int) {
	for j := range c.nodes {
		if j != i {
			others = append(others, j)
		}
	}
	return others
}

// agree waits until every replica of every stream has all that its leader has.
func (c *splitCluster) agree() {
	c.t.Helper()
	var streams []string
	await(c.t, "the streams are listed", 20*time.Second, func() bool {
		return c.ask(func(ctx context.Context, js jetstream.JetStream) bool {
			streams = nil
			list := js.StreamNames(ctx)
			for name := range list.Name() {
				streams = append(streams, name)
			}
			return list.Err() == nil
		})
	})
	if !slices.Contains(streams, "triggerd_EVENTS") || !slices.Contains(streams, "triggerd_TURNS") {
		c.t.Fatalf("streams %v", streams)
	}
	for _, s := range streams {
		c.awaitReplicas(s)
	}
}

// split is daemons on such a cluster, each on a server of its own, under load. Each daemon is sent events that are sent to no other.
type split struct {
	*fleet
	c      *splitCluster
	log    *effectLog
	flows  []*flow // one to each daemon, over threads of its own
	blows  []blow
	report []string
}

// threadsOfFlow is how many threads the events to one daemon are of.
const threadsOfFlow = 4

// The network between three NATS servers is cut: between one, on which the daemon is that runs most turns, and the others, without a word; between another one
// and the others, with resets; and between all three. Nothing that was accepted on either side is lost or done twice at a time, and the majority goes on.
func TestNetworkBetweenServersIsCut(t *testing.T) {
	t.Parallel() // it mostly waits
	s := &split{c: newSplitCluster(t, 3), log: newEffectLog(t, shortEffects)}
	s.fleet = newGroup(t, 3, func(i int) string { return fmt.Sprintf("  url: nats://%s\n  replicas: 3", s.c.nodes[i].addr) }, fleetConfig(s.log), asTheyAre)
	for i, m := range s.members {
		s.flows = append(s.flows, startFlowFrom(s.part(m), i*threadsOfFlow, threadsOfFlow, 100*time.Millisecond))
	}
	began := time.Now()
	most := s.busiest(s.log)
	at := slices.Index(s.members, most)
	s.minority(at, "stalled", (*proxy).stall, 12*time.Second)
	s.minority((at+1)%3, "severed", (*proxy).sever, 3*time.Second)
	s.scattered(5 * time.Second)

	all := stopAll(s.flows...)
	all.f = s.fleet
	s.c.agree()
	repeated := checkFleet(s.fleet, all, s.log, s.blows)
	t.Logf("%d events, %d posts sent again, %d effects repeated, in %s", len(all.ids()), all.refusals, repeated, time.Since(began).Round(time.Second))
	for _, line := range s.report {
		t.Log(line)
	}
}

// minority cuts one server off for a while. The majority has to go on within the cut when that is long enough for elections.
func (s *split) minority(i int, how string, cut func(*proxy), length time.Duration) {
	s.t.Helper()
	s.settled()
	at := time.Now()
	s.c.apart(cut, []int{i}, s.c.others(i))
	s.refuses(i, at)
	went := "was not waited for"
	if length > 5*time.Second {
		went = s.goesOn(i, at)
	}
	if left := length - time.Since(at); left > 0 {
		<-time.After(left)
	}
	if n := s.flows[i].acceptedSince(at.Add(time.Second)); n > 0 {
		s.t.Errorf("%d events were accepted by the daemon on the minority", n)
	}
	s.c.heal()
	healed := time.Now()
	s.over(fmt.Sprintf("%s cut of %s", how, length), at)
	s.report = append(s.report, fmt.Sprintf("%s cut of one server for %s: the majority %s; all went on %s after the network was back",
		how, healed.Sub(at).Round(time.Millisecond), went, time.Since(healed).Round(time.Millisecond)))
}

// goesOn waits until the servers besides i have elected leaders, and from then on for afterElection at most until events take effect that their
// daemons have taken. It says how long both took.
func (s *split) goesOn(i int, at time.Time) string {
	s.t.Helper()
	s.c.nodes[i].up = false
	s.c.awaitMeta()
	for _, stream := range []string{"triggerd_EVENTS", "triggerd_TURNS", "KV_triggerd_CONTROL"} {
		s.c.leader(stream)
	}
	s.c.nodes[i].up = true
	elected := time.Now()
	for j, l := range s.flows {
		if j != i {
			l.newEffect(s.log, elected, afterElection)
		}
	}
	return fmt.Sprintf("went on %s after leaders were elected, which took %s", time.Since(elected).Round(time.Millisecond), elected.Sub(at).Round(time.Millisecond))
}

// scattered cuts all servers off from each other for a while: then there is no majority.
func (s *split) scattered(length time.Duration) {
	s.t.Helper()
	s.settled()
	at := time.Now()
	s.c.apart((*proxy).sever, []int{0}, []int{1}, []int{2})
	s.refuses(0, at)
	if left := length - time.Since(at); left > 0 {
		<-time.After(left)
	}
	s.c.heal()
	healed := time.Now()
	s.over(fmt.Sprintf("no majority for %s", length), at)
	s.report = append(s.report, fmt.Sprintf("all three apart for %s: all went on %s after the network was back", length, time.Since(healed).Round(time.Millisecond)))
}

// settled waits until the replicas agree and each daemon takes events that take effect, so that what follows is this blow's.
func (s *split) settled() {
	s.t.Helper()
	s.c.agree()
	now := time.Now()
	for _, l := range s.flows {
		l.newEffect(s.log, now, 20*time.Second)
	}
}

// refuses wants a daemon without a majority to answer that it has not stored an event, in time.
func (s *split) refuses(i int, since time.Time) {
	s.t.Helper()
	<-time.After(time.Until(since.Add(500 * time.Millisecond)))
	id, body := s.refused()
	began := time.Now()
	a := s.members[i].postPatiently(id, body)
	if took := time.Since(began); a.Status != http.StatusServiceUnavailable || took > 3*time.Second {
		s.t.Errorf("the daemon without a majority answers %+v after %s, want 503 within 3 s", a, took)
	}
}

// refused is the event that is refused during the next blow, of a thread of its own.
func (s *split) refused() (id string, body []byte) { return numbered(1000+len(s.blows), 1) }

// sendAgain sends the event that was refused, to all daemons until one takes it, as its sender has to.
func (s *split) sendAgain() {
	s.t.Helper()
	id, body := s.refused()
	if _, err := s.deliver(id, body); err != nil {
		s.t.Fatal(err)
	}
	l := s.flows[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[id], l.numbers[id] = time.Now(), 1
}

// over waits until events to every daemon take effect again, and notes the blow.
func (s *split) over(what string, at time.Time) {
	s.t.Helper()
	healed := time.Now()
	s.sendAgain()
	for _, l := range s.flows {
		l.newEffect(s.log, healed, 45*time.Second)
	}
	s.blows = append(s.blows, blow{what: what, at: at, until: time.Now(), cuts: true})
}
