package integration

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The cluster itself: its stream leader is killed and then frozen, publishing goes on each time, and nothing that was acknowledged is lost.
func TestClusterGoesOnWithoutItsLeader(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	c := newCluster(t, 3)
	nc, err := nats.Connect(strings.Join(c.urls(), ","), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.PingInterval(500*time.Millisecond), nats.MaxPingsOutstanding(2)) // it may hang on the server that freezes
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true})
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	publish := func() { // until one more is stored
		t.Helper()
		await(t, "a publish is acknowledged", 20*time.Second, func() bool {
			one, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := js.Publish(one, fmt.Sprint("s.", stored), nil)
			return err == nil || strings.Contains(err.Error(), "maximum messages per subject")
		})
		stored++
	}
	for _, blow := range []struct {
		name     string
		do, undo func(*natsNode)
	}{
		{"kill", (*natsNode).kill, func(n *natsNode) { n.restart(c) }},
		{"freeze", (*natsNode).freeze, (*natsNode).thaw},
	} {
		publish()
		c.awaitReplicas("S")
		leader := c.leader("S")
		began := time.Now()
		blow.do(leader)
		publish()
		took := time.Since(began)
		if next := c.leader("S"); next == leader {
			t.Errorf("%s is still the leader", next.name)
		}
		blow.undo(leader)
		t.Logf("%s of the leader: stored again after %s", blow.name, took)
	}
	c.awaitMeta()
	c.awaitReplicas("S")
	if info, err := s.Info(ctx); err != nil || info.State.Msgs != uint64(stored) {
		t.Errorf("the stream has %+v, %v; want %d messages", info, err, stored)
	}
}

func TestProxyCuts(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Close() }()
	go func() { // answers each line with itself
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					if _, err := fmt.Fprintln(c, s.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	p := newProxy(t, target.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	hear := func(c net.Conn, limit time.Duration) (string, error) {
		_ = c.SetReadDeadline(time.Now().Add(limit))
		line, err := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	c := dial()
	say := func(c net.Conn, word string) {
		t.Helper()
		if _, err := fmt.Fprintln(c, word); err != nil {
			t.Fatal(err)
		}
	}
	say(c, "one")
	if got, err := hear(c, 5*time.Second); got != "one" {
		t.Fatalf("through the open proxy: %q, %v", got, err)
	}
	p.stall()
	say(c, "two")
	late := dial()
	say(late, "three")
	if got, err := hear(c, 100*time.Millisecond); err == nil || !isTimeout(err) {
		t.Fatalf("through the stalled proxy: %q, %v", got, err)
	}
	p.restore()
	for conn, want := range map[net.Conn]string{c: "two", late: "three"} {
		if got, err := hear(conn, 5*time.Second); got != want {
			t.Fatalf("after the stall: %q, %v, want %q", got, err, want)
		}
	}
	p.sever()
	if got, err := hear(c, 5*time.Second); err == nil || isTimeout(err) {
		t.Fatalf("through the severed proxy: %q, %v, want the connection closed", got, err)
	}
	if got, err := hear(dial(), 5*time.Second); err == nil || isTimeout(err) {
		t.Fatalf("a new connection through the severed proxy: %q, %v, want it closed", got, err)
	}
	p.restore()
	again := dial()
	say(again, "four")
	if got, err := hear(again, 5*time.Second); got != "four" {
		t.Fatalf("after the cut: %q, %v", got, err)
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}
