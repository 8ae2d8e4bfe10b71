package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd/console"
)

// What `nats permissions` prints is enough for everything that a daemon does, and does not reach beyond its own subjects.
func TestNATSPermissions(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "nats.conf")
	server := &natsServer{t: t, addr: freeAddr(t), dir: t.TempDir(), args: []string{"-c", file}, opts: []nats.Option{nats.UserInfo("ops", "o")}}
	in := newInstallation(t, "  url: nats://daemon:d@"+server.addr, `connections:
  in: { webhook: { verify: { scheme: none }, max_body: 8MiB } }
  orders: { push: {} }
triggers:
  work: { connection: in, run: { http: { url: `+w.URL+`/effect } } }
  pass: { connection: orders, run: { publish: { subject: "shop.${{ event.type }}" } } }
`)
	conf := "max_payload: 2MB\nauthorization { users: [\n  { user: ops, password: o }\n  { user: daemon, password: d, " + in.must("nats", "permissions") + "  }\n] }\n"
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	server.start()
	t.Cleanup(func() { server.stop(os.Kill) })
	p := in.run()
	ops, err := nats.Connect(server.url(), server.opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer ops.Close()
	passed, err := ops.SubscribeSync("shop.*")
	if err != nil {
		t.Fatal(err)
	}

	in.mustPost("in", "small", []byte("x"))
	in.mustPost("in", "large", make([]byte, 3<<20)) // a blob
	in.must("triggers", "pause", "work")
	in.mustPost("in", "held", []byte("x"))
	in.must("triggers", "resume", "work")
	if _, err := ops.Request("triggerd.push.orders.made", []byte("{}"), 5*time.Second); err != nil {
		t.Errorf("push: %v", err)
	}
	if _, err := ops.Request("triggerd.submit.orders.made", []byte("{}"), 5*time.Second); err != nil {
		t.Errorf("submit: %v", err)
	}
	for range 2 {
		if _, err := passed.NextMsg(10 * time.Second); err != nil {
			t.Fatalf("the publish action's message: %v", err)
		}
	}
	turns := in.awaitTurns("", "five done turns", 20*time.Second, allFinal(5))
	in.must("turns", "retry", turns[0].Hash)
	in.awaitTurns("", "six done turns", 20*time.Second, allFinal(6))
	in.must("events", "list")
	in.must("explain", "in/large")
	second := newInstallation(t, "", "")
	second.write(strings.NewReplacer(in.addr, second.addr, in.socket(), second.socket()).Replace(in.read()))
	q := second.run()
	await(t, "each has its share", 10*time.Second, func() bool { return partitions(in) == 16 && partitions(second) == 16 })
	in.must("turns", "retry", turns[0].Hash) // one of the two does not run it, and passes it on
	second.must("turns", "retry", turns[0].Hash)
	second.must("reload")
	in.awaitTurns("", "eight done turns", 20*time.Second, allFinal(8))
	p.stop()
	second.awaitTurns("", "the same turns", 20*time.Second, allFinal(8))
	p2 := in.run()
	second.must("triggers", "pause", "work")
	await(t, "the first knows of the pause", 5*time.Second, func() bool {
		return slices.ContainsFunc(asJSON[[]console.TriggerInfo](in, "triggers", "list"), func(i console.TriggerInfo) bool { return i.Name == "work" && i.Paused })
	})
	q.stop()
	p2.stop()
	for _, log := range []string{p.log.String(), q.log.String(), p2.log.String()} {
		if strings.Contains(strings.ToLower(log), "violation") {
			t.Errorf("the daemon lacks a permission:\n%s", log)
		}
	}

	violations := make(chan error, 10)
	daemon, err := nats.Connect(server.url(), nats.UserInfo("daemon", "d"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	for _, subject := range []string{"other", "triggerd.push.orders.made", "$JS.API.STREAM.DELETE.other", "$JS.API.STREAM.INFO.other"} {
		if err := daemon.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-violations:
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", subject)) {
				t.Errorf("publish to %s: %v", subject, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("the user may publish to %s", subject)
		}
	}
}
