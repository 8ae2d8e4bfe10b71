package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

// One daemon owns a NATS: a second one is refused while the first lives, and takes over when it has died.
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

	failsToStart(t, second, "another daemon owns this NATS", fmt.Sprint("process ", p.cmd.Process.Pid), "stop that one", "nats.prefix")
	first.mustPost("in", "held", []byte("held"))
	arrives(t, held)
	p.kill()
	died := time.Now()
	second.run()
	took := time.Since(died)
	if took > 10*time.Second {
		t.Errorf("the second daemon took over after %s, want 10 s at most", took)
	}
	release()
	repeats := everyOneDone(second, w, []string{"done", "held"})
	if repeats > 1 {
		t.Errorf("%d effects were repeated, one action was cut short", repeats)
	}
	if a := second.mustPost("in", "done", []byte("x")); !a.Duplicate {
		t.Error("the second daemon takes an event of the first as new")
	}
	t.Logf("took over %s after the kill -9", took)
}

// A daemon that was stopped in order gives its ownership back: the next one does not wait.
func TestExternalNATSIsHandedOver(t *testing.T) {
	w := newWorld(t)
	server := newNATS(t, nil)
	first := newInstallation(t, "  url: "+server.url(), oneHook(w))
	second := newInstallation(t, "  url: "+server.url(), oneHook(w))
	first.run().stop()
	began := time.Now()
	second.run()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the second daemon was ready after %s, although the first one had stopped in order", took)
	}
	second.mustPost("in", "e", []byte("x"))
	everyOneDone(second, w, []string{"e"})
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
