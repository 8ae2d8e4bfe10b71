package integration

import (
	"fmt"
	"os"
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

// One daemon owns the work of a NATS. Another one is a standby: it takes webhooks and answers questions, and takes over when the owner has died.
func TestExternalNATSHasOneOwner(t *testing.T) {
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
	await(t, "both daemons know each other", 5*time.Second, func() bool { return owner(first) == p.cmd.Process.Pid && owner(second) == p.cmd.Process.Pid })
	second.mustPost("in", "taken by the standby", []byte("x"))
	second.awaitTurns("work", "a turn of the owner's", 10*time.Second, allFinal(2))
	if _, errs, code := second.command("triggers", "pause", "work"); code != 1 || !strings.Contains(errs, "standby") || !strings.Contains(errs, fmt.Sprint("process ", p.cmd.Process.Pid)) {
		t.Errorf("a standby answers a pause with %d and %q, want the owner named", code, errs)
	}

	first.mustPost("in", "held", []byte("held"))
	arrives(t, held)
	p.kill()
	died := time.Now()
	second.mustPost("in", "meanwhile", []byte("x"))
	await(t, "the standby owns the work", 10*time.Second, func() bool { return owner(second) != p.cmd.Process.Pid && owner(second) != 0 })
	took := time.Since(died)
	if took > 8*time.Second {
		t.Errorf("the second daemon took over after %s, want 8 s at most", took)
	}
	release()
	repeats := everyOneDone(second, w, []string{"done", "taken by the standby", "held", "meanwhile"})
	if repeats > 1 {
		t.Errorf("%d effects were repeated, one action was cut short", repeats)
	}
	if a := second.mustPost("in", "done", []byte("x")); !a.Duplicate {
		t.Error("the second daemon takes an event of the first as new")
	}
	t.Logf("took over %s after the kill -9", took)
}

// owner is the process that owns the work, as the installation's daemon says; 0 when none does.
func owner(in *installation) int {
	for _, d := range asJSON[[]console.DaemonInfo](in, "daemons", "list") {
		if d.Owner {
			return d.PID
		}
	}
	return 0
}

// A daemon that is stopped in order gives its ownership back: the standby does not wait, and no request is refused meanwhile.
func TestExternalNATSIsHandedOver(t *testing.T) {
	w := newWorld(t)
	server := newNATS(t, nil)
	first := newInstallation(t, "  url: "+server.url(), oneHook(w))
	second := newInstallation(t, "  url: "+server.url(), oneHook(w))
	p := first.run()
	q := second.run()
	first.mustPost("in", "e1", []byte("x"))
	f := startTraffic(second, 2, []byte("x"))
	f.moreAccepted(20, 10*time.Second)
	stopped := time.Now()
	p.signal(syscall.SIGTERM)
	await(t, "the standby owns the work", 10*time.Second, func() bool { return owner(second) == q.cmd.Process.Pid })
	took := time.Since(stopped)
	if took > time.Second+slack {
		t.Errorf("the standby took over %s after the owner was told to stop", took)
	}
	p.ended(10*time.Second, 0)
	f.moreAccepted(20, 10*time.Second)
	f.stop()
	if f.refused > 0 {
		t.Errorf("%d requests were refused by the standby", f.refused)
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
	second.configure("server:\n", "generation: 3\nserver:\n")
	q.signal(syscall.SIGHUP)
	if repeats := everyOneDone(second, w, []string{"e1", "e2"}); repeats > 0 {
		t.Errorf("%d effects were repeated", repeats)
	}
}
