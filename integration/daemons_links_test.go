package integration

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// keepsWork is a cut that is so short that a daemon keeps its work.
const keepsWork = 2 * time.Second

// The network between one daemon and NATS is cut for 2 to 30 s, without a word or with resets: once of a daemon that runs turns, once of another one.
// What the cut daemon ran is done by the other, which goes on with what it is sent itself; what the cut one is sent is refused, and taken later.
func TestNetworkOfADaemonIsCut(t *testing.T) {
	t.Parallel() // it mostly waits
	server := newNATS(t, nil)
	cases := map[string]func(*testing.T){}
	for i, c := range []linkCut{
		{runner: true, length: keepsWork, how: "stalled"}, {runner: true, length: keepsWork, how: "severed"},
		{runner: true, length: 10 * time.Second, how: "stalled"}, {runner: true, length: 30 * time.Second, how: "severed"},
		{runner: false, length: keepsWork, how: "severed"}, {runner: false, length: 10 * time.Second, how: "stalled"},
		{runner: false, length: 10 * time.Second, how: "severed"}, {runner: false, length: 30 * time.Second, how: "stalled"},
	} {
		c.server, c.prefix = server, fmt.Sprint("links", i)
		cases[c.String()] = c.test
	}
	together(t, cases)
}

// linkCut is one cut, of one of the daemons of an installation of its own.
type linkCut struct {
	server *natsServer
	prefix string
	runner bool // the daemon that runs most turns is cut off; else one that runs fewest
	length time.Duration
	how    string
}

func (c linkCut) String() string {
	who := "other"
	if c.runner {
		who = "runner"
	}
	return fmt.Sprintf("%s %s %s", who, c.how, c.length)
}

func (c linkCut) test(t *testing.T) {
	log := newEffectLog(t, shortEffects)
	links := []*proxy{newProxy(t, c.server.addr), newProxy(t, c.server.addr)}
	f := newGroup(t, 2, func(i int) string { return fmt.Sprintf("  url: %s\n  prefix: %s", links[i].url(), c.prefix) }, fleetConfig(log), asTheyAre)
	flows := map[*member]*flow{} // what each daemon is sent, and no other
	for i, m := range f.members {
		flows[m] = startFlowFrom(f.part(m), 8*i, 8, 100*time.Millisecond)
	}
	cut := f.busiest(log)
	if !c.runner {
		cut = f.other(cut)
	}
	other := f.other(cut)
	link := links[slices.Index(f.members, cut)]

	at := time.Now()
	if c.how == "stalled" {
		link.stall()
	} else {
		link.sever()
	}
	again := refusedWhileCut(t, cut, at, c.length)
	<-time.After(time.Until(at.Add(c.length)))
	link.restore()
	back := time.Now()
	for _, l := range flows {
		l.newEffect(log, back, 20*time.Second)
	}
	took := time.Since(back)
	b := blow{what: c.String(), at: at, until: time.Now(), cuts: c.length > keepsWork}
	if again != nil {
		again(flows[other])
	}
	f.acquainted()

	all := stopAll(flows[cut], flows[other])
	all.f = f
	repeated := checkFleet(f, all, log, []blow{b})
	gap := c.longestPause(t, log, flows[other], b)
	t.Logf("%d events, %d posts sent again, %d effects repeated; longest pause %s; all went on %s after the network was back",
		len(all.ids()), all.refusals, repeated, gap.Round(time.Millisecond), took.Round(time.Millisecond))
}

// refusedWhileCut posts an event to the daemon that is cut off, which has to be refused in time. It returns what sends the event again, nil when the cut was
// so short that the daemon may have waited for its end.
func refusedWhileCut(t *testing.T, m *member, at time.Time, length time.Duration) (again func(*flow)) {
	t.Helper()
	if length <= keepsWork {
		return nil
	}
	<-time.After(time.Until(at.Add(time.Second)))
	id, body := numbered(1000, 1)
	began := time.Now()
	a := m.postPatiently(id, body)
	if took := time.Since(began); a.Status != http.StatusServiceUnavailable || took > 3*time.Second {
		t.Errorf("the daemon that is cut off answers %+v after %s, want 503 within 3 s", a, took)
	}
	return func(l *flow) { l.send(1000, 1) }
}

// longestPause wants the events that the connected daemon was sent to take effect, whoever ran their threads or read their connection before, and returns the
// longest time in which none did.
func (c linkCut) longestPause(t *testing.T, log *effectLog, sent *flow, b blow) time.Duration {
	t.Helper()
	ids := sent.ids()
	gap := longestGap(slices.DeleteFunc(log.all(), func(a attempt) bool {
		id, ok := eventOf(a.key)
		_, some := ids[id]
		return !ok || !some
	}), b.at, b.until)
	limit := afterKill
	if c.length <= keepsWork {
		limit = c.length + noPause
	}
	if gap > limit {
		t.Errorf("%s without an effect of an event that the connected daemon took, want %s at most", gap, limit)
	}
	return gap
}
