package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// cutLasts is longer than a successor waits.
const cutLasts = 8 * time.Second

// A daemon's network is cut while its actions run, once without a word and once with resets. It ends them before the successor repeats them with the
// same keys; what it had sent or wants to send arrives when the network is back, and counts for nothing.
func TestRunnerIsCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*proxy){"stalled": (*proxy).stall, "severed": (*proxy).sever} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			cutOff(t, cut)
		})
	}
}

func cutOff(t *testing.T, cut func(*proxy)) {
	log := newEffectLog(t, func(key string, nth int) time.Duration {
		switch {
		case nth > 0:
			return 300 * time.Millisecond
		case strings.HasSuffix(key, ":t0-1"):
			return time.Minute // never ends by itself
		}
		return time.Second // ends while the network is cut, and cannot be recorded
	})
	server := newNATS(t, nil)
	links := []*proxy{newProxy(t, server.addr), newProxy(t, server.addr)}
	thread := "    thread: event.payload.thread\n"
	oneDaemon := thread + "    concurrency: [ { limit: 10 } ]\n" // runs all turns of the trigger: see docs/promises.md
	f := newFleet(t, 2, func(i int) string { return "  url: " + links[i].url() }, strings.Replace(fleetConfig(log), thread, oneDaemon, 1))

	long, body := numbered(0, 1)
	f.random().mustPost("in", long, body)
	quick, body := numbered(1, 1)
	f.random().mustPost("in", quick, body)
	<-log.started
	<-log.started // both actions are under way
	owner := f.runner("in:work:" + long)
	link, next := links[slices.Index(f.members, owner)], f.other(owner)
	cut(link)
	began := time.Now()
	late, body := numbered(2, 1)
	if a := owner.postPatiently(late, body); a.Status != http.StatusServiceUnavailable {
		t.Errorf("the daemon that is cut off answers %+v, want 503", a)
	}
	next.mustPost("in", late, body)
	next.awaitTurns("work", "the successor has done all three", 15*time.Second, allFinal(3))
	took := time.Since(began)
	<-time.After(time.Until(began.Add(cutLasts)))
	link.restore()
	f.cameBack(owner)

	for _, id := range []string{long, quick} {
		as := log.of("in:work:" + id)
		if len(as) != 2 || as[0].cut != (id == long) || as[1].cut {
			t.Errorf("attempts of %s: %+v, want one by each owner", id, as)
		}
		next.oneEnd("in:work:" + id)
	}
	if as := log.of("in:work:" + late); len(as) != 1 {
		t.Errorf("attempts of the event that came during the cut: %+v", as)
	}
	for _, p := range overlaps(log.all()) {
		t.Errorf("both owners ran %s at the same time\n%s", p[0].key, story(p[:], nil))
	}
	after, body := numbered(0, 2)
	owner.mustPost("in", after, body)
	next.awaitTurns("work", "the event that the daemon that was cut off took is done", 10*time.Second, allFinal(4))
	next.oneEnd("in:work:" + after)
	t.Logf("all done by the successor %s after the cut", took)
}
