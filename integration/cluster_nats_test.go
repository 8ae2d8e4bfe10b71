package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsCluster is several NATS servers as one JetStream cluster. Each can be killed, frozen and started again on its own store.
type natsCluster struct {
	t     *testing.T
	nodes []*natsNode
}

// natsNode is one server of a cluster. Its fields belong to the test's goroutine.
type natsNode struct {
	t       *testing.T
	name    string
	addr    string // clients
	monitor string // HTTP
	args    []string
	log     *lockedBuffer
	cmd     *exec.Cmd
	done    chan struct{}
	up      bool // started, and neither killed nor frozen since
}

// newCluster starts n servers and returns when they have a meta leader, so that streams can be made.
func newCluster(t *testing.T, n int) *natsCluster {
	t.Helper()
	c, addrs := &natsCluster{t: t}, freeAddrs(t, 3*n)
	var routes []string
	for i := range n {
		routes = append(routes, "nats://"+addrs[3*i+2])
	}
	for i := range n {
		node := &natsNode{t: t, name: fmt.Sprint("n", i), addr: addrs[3*i], monitor: addrs[3*i+1], log: &lockedBuffer{}}
		host, port, _ := net.SplitHostPort(node.addr)
		_, monitor, _ := net.SplitHostPort(node.monitor)
		node.args = []string{
			"-js", "-sd", filepath.Join(t.TempDir(), node.name), "-n", node.name, "-a", host, "-p", port, "-m", monitor,
			"--cluster_name", "integration", "--cluster", routes[i], "--routes", strings.Join(routes, ","),
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

// freeAddrs are n different addresses, which are all free at the same moment. They are none of those that the kernel gives to outgoing connections,
// one of which may take a port between this and its use.
func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for tries := 0; len(addrs) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.N(20_000)))
		if err != nil && tries < 100 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// urls is where clients find the cluster: every server, whether it runs or not.
func (c *natsCluster) urls() (urls []string) {
	for _, n := range c.nodes {
		urls = append(urls, "nats://"+n.addr)
	}
	return urls
}

// config is the nats section of a daemon on this cluster.
func (c *natsCluster) config() string {
	return fmt.Sprintf("  url: [%s]\n  replicas: %d", strings.Join(c.urls(), ", "), len(c.nodes))
}

// start returns when the server takes clients; the cluster may need longer to have a leader.
func (n *natsNode) start() {
	n.t.Helper()
	bin, err := buildNATS()
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd, n.done = exec.Command(bin, n.args...), make(chan struct{})
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(n.cmd, n.done)
	n.up = true
	await(n.t, "the NATS server "+n.name+" takes clients", 15*time.Second, func() bool {
		conn, err := net.DialTimeout("tcp", n.addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// kill is kill -9, and waits until the server is gone. Safe to repeat.
func (n *natsNode) kill() {
	n.up = false
	_ = n.cmd.Process.Signal(syscall.SIGKILL)
	<-n.done
}

func (n *natsNode) freeze() { n.up = false; _ = n.cmd.Process.Signal(syscall.SIGSTOP) }
func (n *natsNode) thaw()   { n.up = true; _ = n.cmd.Process.Signal(syscall.SIGCONT) }

func (n *natsNode) close() {
	n.kill()
	if n.t.Failed() {
		n.t.Logf("log of the NATS server %s:\n%s", n.name, tail(n.log.String(), 3000))
	}
}

var monitorClient = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// meta is the meta leader that the server knows, "" when it knows none.
func (n *natsNode) meta() string {
	res, err := monitorClient.Get("http://" + n.monitor + "/jsz")
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	var jsz struct {
		Meta struct {
			Leader string `json:"leader"`
		} `json:"meta_cluster"`
	}
	if json.NewDecoder(res.Body).Decode(&jsz) != nil {
		return ""
	}
	return jsz.Meta.Leader
}

// running is the server of this name, or nil when it does not run.
func (c *natsCluster) running(name string) *natsNode {
	i := slices.IndexFunc(c.nodes, func(n *natsNode) bool { return n.up && n.name == name })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

// awaitMeta waits until all running servers agree on a meta leader that runs, and JetStream answers.
func (c *natsCluster) awaitMeta() {
	c.t.Helper()
	await(c.t, "the cluster has a meta leader", 30*time.Second, func() bool {
		leaders := map[string]bool{}
		for _, n := range c.nodes {
			if n.up {
				leaders[n.meta()] = true
			}
		}
		for name := range leaders {
			if len(leaders) == 1 && c.running(name) != nil {
				return c.ask(func(ctx context.Context, js jetstream.JetStream) bool {
					_, err := js.AccountInfo(ctx)
					return err == nil
				})
			}
		}
		return false
	})
}

// ask runs f on a connection of its own to the running servers, for at most a second.
func (c *natsCluster) ask(f func(context.Context, jetstream.JetStream) bool) bool {
	var urls []string
	for _, n := range c.nodes {
		if n.up {
			urls = append(urls, "nats://"+n.addr)
		}
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.Timeout(time.Second), nats.IgnoreDiscoveredServers())
	if err != nil {
		return false
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return f(ctx, js)
}

// leader waits until a stream has a leader that runs, and returns it.
func (c *natsCluster) leader(stream string) (leader *natsNode) {
	c.t.Helper()
	await(c.t, "the stream "+stream+" has a leader", 30*time.Second, func() bool {
		return c.info(stream, func(i *jetstream.ClusterInfo) bool {
			leader = c.running(i.Leader)
			return leader != nil
		})
	})
	return leader
}

// awaitReplicas waits until every replica of a stream has all that its leader has: then the loss of any one server costs nothing.
func (c *natsCluster) awaitReplicas(stream string) {
	c.t.Helper()
	await(c.t, "the replicas of "+stream+" are current", 30*time.Second, func() bool {
		return c.info(stream, func(i *jetstream.ClusterInfo) bool {
			behind := slices.ContainsFunc(i.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
			return c.running(i.Leader) != nil && len(i.Replicas) == len(c.nodes)-1 && !behind
		})
	})
}

// info asks for the state of a stream's replicas.
func (c *natsCluster) info(stream string, ok func(*jetstream.ClusterInfo) bool) bool {
	return c.ask(func(ctx context.Context, js jetstream.JetStream) bool {
		s, err := js.Stream(ctx, stream)
		return err == nil && s.CachedInfo().Cluster != nil && ok(s.CachedInfo().Cluster)
	})
}

// restart starts a killed server and waits until it is a part of the cluster again.
func (n *natsNode) restart(c *natsCluster) {
	n.t.Helper()
	if _, err := os.Stat(n.args[2]); err != nil {
		n.t.Fatalf("the store of %s is gone: %v", n.name, err)
	}
	n.start()
	c.awaitMeta()
}
