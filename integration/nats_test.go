package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd/console"
)

// A NATS server of its own goes away, once politely and once by kill -9, and comes back: senders are told to come again,
// and what was accepted or under way goes on by itself.
func TestExternalNATSGoesAway(t *testing.T) {
	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			release, held := w.hold(t, "held")
			server := newNATS(t, nil)
			in := newInstallation(t, "  url: "+server.url(), oneHook(w))
			p := in.run()
			in.mustPost("in", "held", []byte("held"))
			arrives(t, held)
			f := startTraffic(in, 4, []byte("x"))
			f.moreAccepted(50, 10*time.Second)

			server.stop(sig)
			f.onlyRefused(6, 15*time.Second)
			if why := in.unready(); !strings.Contains(why, "NATS") {
				t.Errorf("not ready because of %q, want NATS named", why)
			}
			release() // the action ends while nothing can be recorded
			await(t, "the action has ended", 5*time.Second, func() bool { return w.byKey()["in:work:held"] == 1 })
			server.start()
			back := time.Now()
			f.moreAccepted(50, 15*time.Second)
			took := time.Since(back)
			f.stop()
			accepted := append(f.accepted, "held")
			if repeats := everyOneDone(in, w, accepted); repeats != 0 {
				t.Errorf("%d effects were repeated, although the daemon lived", repeats)
			}
			await(t, "ready again", 5*time.Second, func() bool { return in.unready() == "" })
			p.stop()
			t.Logf("%d accepted, %d refused (slowest %s); 50 more accepted %s after NATS was back", len(accepted), f.refused, f.slowest, took)
		})
	}
}

// partitions is how many partitions of turns this installation's daemon runs, as it says.
func partitions(in *installation) int {
	for _, d := range asJSON[[]console.DaemonInfo](in, "daemons", "list") {
		if d.Self {
			return d.Partitions
		}
	}
	return 0
}

// Two daemons on one NATS share the work: each takes webhooks, any of them answers every command, whoever runs the turn that it is about, and
// when one has died the other has all of it.
func TestExternalNATSIsShared(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	release, held := w.hold(t, "held")
	server := newNATS(t, nil)
	first := newInstallation(t, "  url: "+server.url(), oneHook(w))
	second := newInstallation(t, "  url: "+server.url(), oneHook(w))
	p := first.run()
	first.mustPost("in", "done", []byte("x"))
	first.awaitTurns("work", "a done turn", 10*time.Second, allFinal(1))
	second.run()
	await(t, "each has its share", 10*time.Second, func() bool { return partitions(first) == 16 && partitions(second) == 16 })
	second.mustPost("in", "taken by the second", []byte("x"))
	second.awaitTurns("work", "its turn", 10*time.Second, allFinal(2))

	pausedAnywhere(t, first, second)
	operatedAnywhere(t, []*installation{first, second}, held)

	for _, id := range []string{"held", "held too"} { // whichever runs where
		first.mustPost("in", id, []byte("held"))
		arrives(t, held)
	}
	p.kill()
	died := time.Now()
	second.mustPost("in", "meanwhile", []byte("x"))
	await(t, "the other owns all the work", 10*time.Second, func() bool { return partitions(second) == 32 })
	took := time.Since(died)
	if took > 8*time.Second {
		t.Errorf("the second daemon took over after %s, want 8 s at most", took)
	}
	release()
	second.awaitTurns("work", "every turn is over", 20*time.Second, allFinal(13))
	for key, n := range w.byKey() {
		if n > 1 && !strings.HasPrefix(key, "in:work:held") && key != "in:work:operated#1" { // what ran when the daemon was killed
			t.Errorf("%s took effect %d times", key, n)
		}
	}
	if a := second.mustPost("in", "done", []byte("x")); !a.Duplicate {
		t.Error("the second daemon takes an event of the first as new")
	}
	t.Logf("took over %s after the kill -9", took)
}

// pausedAnywhere pauses a trigger on one daemon and resumes it on the other: both hold it in between.
func pausedAnywhere(t *testing.T, one, other *installation) {
	t.Helper()
	if _, errs, code := one.command("triggers", "pause", "work", "--note", "test"); code != 0 {
		t.Fatalf("pause: %d, %s", code, errs)
	}
	await(t, "the other knows of the pause", 5*time.Second, func() bool {
		return asJSON[[]console.TriggerInfo](other, "triggers", "list")[0].Paused
	})
	for i := range 6 { // over the partitions of both
		one.mustPost("in", fmt.Sprint("paused", i), []byte("x"))
	}
	other.awaitTurns("work", "all are held", 10*time.Second, func(ts []console.TurnInfo) bool {
		n := 0
		for _, turn := range ts {
			if turn.State == "held" {
				n++
			}
		}
		return n == 6
	})
	if _, errs, code := other.command("triggers", "resume", "work"); code != 0 {
		t.Fatalf("resume: %d, %s", code, errs)
	}
	one.awaitTurns("work", "all that was held is done", 10*time.Second, allFinal(8))
}

// operatedAnywhere cancels a running turn through the daemon that does not run it, and repeats it so.
func operatedAnywhere(t *testing.T, both []*installation, held chan struct{}) {
	t.Helper()
	both[0].mustPost("in", "operated", []byte("held"))
	arrives(t, held)
	const key = "in:work:operated"
	history := both[0].detail(key).History
	away := both[0]
	for _, d := range asJSON[[]console.DaemonInfo](away, "daemons", "list") {
		if d.Self && d.ID == history[len(history)-1].Daemon {
			away = both[1]
		}
	}
	if _, errs, code := away.command("turns", "cancel", key); code != 0 {
		t.Fatalf("cancel: %d, %s", code, errs)
	}
	if d := both[0].detail(key); d.State != "cancelled" {
		t.Errorf("the turn is %s", d.State)
	}
	if _, errs, code := away.command("turns", "cancel", key); code == 0 || !strings.Contains(errs, "cancelled already") {
		t.Errorf("a second cancel: %d, %s", code, errs)
	}
	if _, errs, code := away.command("turns", "retry", key); code != 0 {
		t.Fatalf("retry: %d, %s", code, errs)
	}
	arrives(t, held) // it runs again, until the test lets it end
}

// A daemon that is stopped in order hands its work over: the other does not wait, and no request is refused meanwhile.
func TestExternalNATSIsHandedOver(t *testing.T) {
	w := newWorld(t)
	server := newNATS(t, nil)
	first := newInstallation(t, "  url: "+server.url(), oneHook(w))
	second := newInstallation(t, "  url: "+server.url(), oneHook(w))
	p := first.run()
	second.run()
	await(t, "each has its share", 10*time.Second, func() bool { return partitions(first) == 16 && partitions(second) == 16 })
	first.mustPost("in", "e1", []byte("x"))
	f := startTraffic(second, 2, []byte("x"))
	f.moreAccepted(20, 10*time.Second)
	stopped := time.Now()
	p.signal(syscall.SIGTERM)
	await(t, "the other owns all the work", 10*time.Second, func() bool { return partitions(second) == 32 })
	took := time.Since(stopped)
	if took > time.Second+slack {
		t.Errorf("the other took over %s after the first was told to stop", took)
	}
	p.ended(10*time.Second, 0)
	f.moreAccepted(20, 10*time.Second)
	f.stop()
	if f.refused > 0 {
		t.Errorf("%d requests were refused by the other", f.refused)
	}
	if repeats := everyOneDone(second, w, append(f.accepted, "e1")); repeats > 0 {
		t.Errorf("%d effects were repeated", repeats)
	}
	t.Logf("handed over in %s, %d events", took, len(f.accepted))
}

func TestExternalNATSCredentials(t *testing.T) {
	const secret = "s3cret-of-the-server"
	w := newWorld(t)
	for name, c := range map[string]struct {
		args        []string
		option      nats.Option
		right, none func(*natsServer) string // sections of the configuration
	}{
		"token": {
			[]string{"--auth", secret}, nats.Token(secret),
			func(s *natsServer) string { return "  url: " + s.url() + "\n  token: ${{ secrets.nats }}" },
			func(s *natsServer) string { return "  url: " + s.url() + "\n  token: not-the-token" },
		},
		"user": {
			[]string{"--user", "ops", "--pass", secret}, nats.UserInfo("ops", secret),
			func(s *natsServer) string { return "  url: nats://ops:" + secret + "@" + s.addr },
			func(s *natsServer) string { return "  url: nats://ops:not-the-token@" + s.addr },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newNATS(t, c.args, c.option)
			body := "secrets: { nats: { env: NATS_TOKEN } }\n" + oneHook(w)
			wrong := newInstallation(t, c.none(server), body)
			wrong.env = []string{"NATS_TOKEN=unused"}
			refused := failsToStart(t, wrong, "nats.url", "Authorization Violation")
			in := newInstallation(t, c.right(server), body)
			in.env = []string{"NATS_TOKEN=" + secret}
			p := in.run()
			in.mustPost("in", name, []byte("x"))
			in.awaitTurns("work", "a done turn", 10*time.Second, allFinal(1))
			server.stop(syscall.SIGKILL)
			p.says("lost the NATS server")
			server.start()
			await(t, "ready again", 10*time.Second, func() bool { return in.unready() == "" })
			in.awaitTurns("work", "the turn is there again", 10*time.Second, allFinal(1))
			p.stop()
			if strings.Contains(p.log.String(), secret) || strings.Contains(refused, "not-the-token") {
				t.Error("a password is in the log")
			}
		})
	}
	t.Run("no server at all", func(t *testing.T) {
		in := newInstallation(t, "  url: nats://ops:"+secret+"@"+freeAddr(t), oneHook(w))
		log := failsToStart(t, in, "nats.url", "no servers available")
		if strings.Contains(log, secret) {
			t.Error("a password is in the log")
		}
	})
}

// A daemon with an older configuration does not undo a newer one: it takes webhooks, and takes over only when it has the newer one too.
func TestExternalNATSKeepsGeneration(t *testing.T) {
	w := newWorld(t)
	server := newNATS(t, nil)
	first := newInstallation(t, "  url: "+server.url(), oneHook(w))
	first.configure("server:\n", "generation: 2\nserver:\n")
	second := newInstallation(t, "  url: "+server.url(), oneHook(w))
	p := first.run()
	q := second.run()
	first.mustPost("in", "e1", []byte("x"))
	p.stop()
	second.mustPost("in", "e2", []byte("x"))
	client := second.client()
	standby := func() console.Readiness { return client.Ready(t.Context()) }
	await(t, "the standby says why it does not take over", 5*time.Second, func() bool { return strings.Contains(standby().Standby, "generation 0") })
	if r := standby(); !r.Ready || r.Role != "standby" {
		t.Errorf("the standby is %+v", r)
	}
	<-time.After(3 * time.Second) // time enough to take what is free
	for _, d := range asJSON[[]console.DaemonInfo](second, "daemons", "list") {
		if d.Self && (d.Owner || d.Partitions != 0 || len(d.Connections) != 0) {
			t.Errorf("the standby has taken something: %+v", d)
		}
	}
	if ts := second.turns(""); slices.ContainsFunc(ts, func(i console.TurnInfo) bool { return i.EventID == "e2" }) {
		t.Errorf("the event that came without an owner has a turn: %+v", ts)
	}
	second.configure("server:\n", "generation: 3\nserver:\n")
	q.signal(syscall.SIGHUP)
	if repeats := everyOneDone(second, w, []string{"e1", "e2"}); repeats > 0 {
		t.Errorf("%d effects were repeated", repeats)
	}
}
