package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/triggerd/triggerd/console"
)

// natsProcess is a NATS server in a process of its own.
type natsProcess struct {
	cmd          *exec.Cmd
	url, monitor string
	dir          string
}

func startNATS(ctx context.Context, s settings) (*natsProcess, error) {
	binary := filepath.Join(s.dir, "nats-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	dir, err := os.MkdirTemp(s.dir, "nats-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	n := &natsProcess{url: "nats://127.0.0.1:" + ports[0], monitor: "http://127.0.0.1:" + ports[1], dir: dir}
	n.cmd = exec.CommandContext(ctx, binary, "-js", "-sd", dir, "-a", "127.0.0.1", "-p", ports[0], "-m", ports[1])
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	for {
		if _, err := n.traffic(ctx); err == nil {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *natsProcess) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	_ = n.cmd.Wait()
	_ = os.RemoveAll(n.dir)
}

// traffic is what the server has seen since its start.
type traffic struct {
	InMsgs   int64 `json:"in_msgs"`
	OutMsgs  int64 `json:"out_msgs"`
	InBytes  int64 `json:"in_bytes"`
	OutBytes int64 `json:"out_bytes"`
}

func (n *natsProcess) traffic(ctx context.Context) (t traffic, err error) {
	return t, getJSON(ctx, n.monitor+"/varz", &t)
}

func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// fleet is several daemons on one server.
type fleet []*daemon

func startFleet(ctx context.Context, s settings, n *natsProcess, count int, rest string) (f fleet, err error) {
	for i := range count {
		d, err := startDaemon(ctx, s, filepath.Join(s.dir, fmt.Sprint("daemon", i)), fmt.Sprintf("{ url: %q }", n.url), rest)
		if err != nil {
			f.stop()
			return nil, err
		}
		f = append(f, d)
	}
	return f, f.settled(ctx)
}

func (f fleet) stop() {
	for _, d := range f {
		d.stop(syscall.SIGTERM)
	}
}

// settled waits until each daemon has its share of the partitions.
func (f fleet) settled(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		for _, d := range f {
			n, err := d.partitions(ctx)
			if err != nil || n < 32/len(f) {
				return false, err
			}
		}
		return true, nil
	})
}

func (f fleet) done(ctx context.Context) (sum int, err error) {
	for _, d := range f {
		n, err := d.done(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (d *daemon) partitions(ctx context.Context) (int, error) {
	client, err := console.Dial("unix:" + d.socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	list, err := client.Daemons(ctx)
	if err != nil {
		return 0, err
	}
	for _, x := range list {
		if x.Self {
			return x.Partitions, nil
		}
	}
	return 0, errors.New("the daemon does not list itself")
}

func until(ctx context.Context, ok func() (bool, error)) error {
	for {
		done, err := ok()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// measureDaemons prints what several daemons on one NATS server do, cost and take over.
func measureDaemons(ctx context.Context, s settings) error {
	if err := throughput(ctx, s); err != nil {
		return fmt.Errorf("throughput: %w", err)
	}
	if err := idleCost(ctx, s); err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	for n := 10; n <= s.turns; n *= 100 {
		if err := takeover(ctx, s, n); err != nil {
			return fmt.Errorf("takeover: %w", err)
		}
	}
	return nil
}

// throughput compares one, two and three daemons with the raw pipeline, all on the same kind of server.
func throughput(ctx context.Context, s settings) error {
	n, err := startNATS(ctx, s)
	if err != nil {
		return err
	}
	raw, err := runRaw(ctx, s, "interval", "-url", n.url)
	n.stop()
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %9s %8s %16s\n", "one NATS server", "events/s", "ratio", "answer p50, p99")
	fmt.Printf("%-34s %9.0f %8s %8s %8s\n", "raw JetStream", raw.rate, "", short(raw.ack50), short(raw.ack99))
	for count := 1; count <= 3; count++ {
		r, err := runFleet(ctx, s, count)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %9.0f %8.2f %8s %8s\n", fmt.Sprintf("triggerd, daemons: %d", count), r.rate, r.rate/raw.rate, short(r.ack50), short(r.ack99))
	}
	fmt.Println()
	return nil
}

func runFleet(ctx context.Context, s settings, count int) (result, error) {
	n, err := startNATS(ctx, s)
	if err != nil {
		return result{}, err
	}
	defer n.stop()
	f, err := startFleet(ctx, s, n, count, oneTrigger)
	if err != nil {
		return result{}, err
	}
	defer f.stop()
	var hooks []string
	for _, d := range f {
		hooks = append(hooks, d.hook("in"))
	}
	began := time.Now()
	acks, err := load(ctx, s, hooks...)
	if err != nil {
		return result{}, err
	}
	err = until(ctx, func() (bool, error) {
		done, err := f.done(ctx)
		return done >= s.events, err
	})
	return result{rate: float64(s.events) / time.Since(began).Seconds(), ack50: quantile(acks, .5), ack99: quantile(acks, .99)}, err
}

// idleCost prints what a hundred connections and 32 partitions cost when nothing happens.
func idleCost(ctx context.Context, s settings) error {
	const window = 20 * time.Second
	var rest strings.Builder
	rest.WriteString("connections:\n")
	for i := range 100 {
		fmt.Fprintf(&rest, "  c%d: { webhook: { verify: { scheme: none } } }\n", i)
	}
	rest.WriteString("triggers:\n  out: { connection: c0, run: { publish: { subject: bench.out } } }\n")
	fmt.Printf("%-34s %10s %10s %12s %12s\n", "idle, 100 connections", "msgs/s", "KiB/s", "CPU NATS", "CPU daemons")
	for _, count := range []int{1, 3} {
		n, err := startNATS(ctx, s)
		if err != nil {
			return err
		}
		f, err := startFleet(ctx, s, n, count, rest.String())
		if err != nil {
			n.stop()
			return err
		}
		line, err := f.idle(ctx, n, window)
		f.stop()
		n.stop()
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %s\n", fmt.Sprintf("triggerd, daemons: %d", count), line)
	}
	fmt.Println()
	return nil
}

func (f fleet) idle(ctx context.Context, n *natsProcess, window time.Duration) (string, error) {
	<-time.After(5 * time.Second) // what a start leaves behind is over
	cpu := func() (server, daemons time.Duration, err error) {
		server, err = cpuTime(n.cmd.Process.Pid)
		for _, d := range f {
			c, e := cpuTime(d.cmd.Process.Pid)
			daemons, err = daemons+c, errors.Join(err, e)
		}
		return server, daemons, err
	}
	before, err := n.traffic(ctx)
	if err != nil {
		return "", err
	}
	server, daemons, err := cpu()
	if err != nil {
		return "", err
	}
	<-time.After(window)
	after, err := n.traffic(ctx)
	if err != nil {
		return "", err
	}
	serverNow, daemonsNow, err := cpu()
	if err != nil {
		return "", err
	}
	per := window.Seconds()
	return fmt.Sprintf("%10.0f %10.1f %11.1f%% %11.1f%%", float64(after.InMsgs-before.InMsgs+after.OutMsgs-before.OutMsgs)/per,
		float64(after.InBytes-before.InBytes+after.OutBytes-before.OutBytes)/per/1024,
		100*(serverNow-server).Seconds()/per, 100*(daemonsNow-daemons).Seconds()/per), nil
}

// takeover prints how long one daemon takes to have another one's work after a kill -9, with so many unfinished turns in the ledger.
func takeover(ctx context.Context, s settings, unfinished int) error {
	n, err := startNATS(ctx, s)
	if err != nil {
		return err
	}
	defer n.stop()
	f, err := startFleet(ctx, s, n, 2, `connections:
  in: { webhook: { verify: { scheme: none } } }
  probe: { webhook: { verify: { scheme: none } } }
triggers:
  out: { connection: in, run: { publish: { subject: bench.out } } }
  probe: { connection: probe, run: { publish: { subject: bench.probe } } }
`)
	if err != nil {
		return err
	}
	defer f[0].stop(syscall.SIGTERM)
	client, err := console.Dial("unix:" + f[0].socket)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if _, err := client.PauseTrigger(ctx, "out", console.PauseRequest{}); err != nil {
		return err
	}
	s.events = unfinished
	if _, err := load(ctx, s, f[0].hook("in"), f[1].hook("in")); err != nil {
		return err
	}
	if err := held(ctx, client, unfinished); err != nil {
		return err
	}
	before, err := f[0].done(ctx)
	if err != nil {
		return err
	}
	f[1].stop(syscall.SIGKILL)
	died := time.Now()
	s.events = 64 // over all partitions
	if _, err := load(ctx, s, f[0].hook("probe")); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { p, err := f[0].partitions(ctx); return p == 32, err }); err != nil {
		return err
	}
	owned := time.Since(died)
	err = until(ctx, func() (bool, error) { done, err := f[0].done(ctx); return done >= before+s.events, err })
	fmt.Printf("kill -9 with %6d unfinished turns: all partitions owned after %s, events of all partitions done after %s\n",
		unfinished, owned.Round(10*time.Millisecond), time.Since(died).Round(10*time.Millisecond))
	return err
}

// held waits until all of the paused trigger's turns are held.
func held(ctx context.Context, client *console.Client, want int) error {
	return until(ctx, func() (bool, error) {
		list, err := client.Triggers(ctx)
		if err != nil {
			return false, err
		}
		for _, t := range list {
			if t.Name == "out" && t.Held >= want {
				return true, nil
			}
		}
		return false, nil
	})
}
