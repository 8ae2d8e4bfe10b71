package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// runDaemons measures several daemons on one NATS server.
func runDaemons(ctx context.Context, s settings, only, backlogs string) error {
	var counts []int
	for _, b := range strings.Split(backlogs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(b))
		if err != nil || n < 1 {
			return fmt.Errorf("read -backlogs: %q is not a positive number", b)
		}
		counts = append(counts, n)
	}
	if err := buildServer(s); err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"throughput", func() error { return measureThroughput(ctx, s) }},
		{"idle", func() error { return measureIdle(ctx, s) }},
		{"takeover", func() error { return measureTakeovers(ctx, s, counts) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.measure(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Println()
	}
	return nil
}

// measureThroughput compares 1, 2 and 3 daemons with the raw pipeline on the same server right before. The CPU includes the server's.
func measureThroughput(ctx context.Context, s settings) error {
	fmt.Printf("%-34s %9s %10s %12s %12s %14s %14s\n", "", "events/s", "CPU each", "answer p50", "answer p99", "to end p50", "to end p99")
	for n := 1; n <= 3; n++ {
		if err := compareFleet(ctx, s, n); err != nil {
			return err
		}
	}
	return nil
}

func compareFleet(ctx context.Context, s settings, n int) error {
	f, err := startServer(ctx, s)
	if err != nil {
		return err
	}
	defer f.stop()
	raw, err := runRaw(ctx, s, "interval", "nats://"+f.addr)
	if err != nil {
		return fmt.Errorf("raw pipeline: %w", err)
	}
	server, err := cpuTime(f.server.Process.Pid)
	if err != nil {
		return err
	}
	raw.cpu += server / time.Duration(s.events)
	raw.print("raw JetStream on the server")
	// Six connections divide among 1, 2 and 3 daemons: the inbox of a connection has one owner.
	body, names := hooks(6)
	if err := f.startDaemons(ctx, n, body); err != nil {
		return err
	}
	r, err := f.drive(ctx, names)
	if err != nil {
		return err
	}
	r.print(fmt.Sprintf("triggerd, daemons: %d", n))
	fmt.Printf("ratio %.2f\n", r.rate/raw.rate)
	return nil
}

// hooks is the configuration of n webhooks, each with a trigger that publishes, and their names.
func hooks(n int) (body string, names []string) {
	var connections, triggers strings.Builder
	for i := range n {
		name := fmt.Sprintf("in%d", i)
		names = append(names, name)
		fmt.Fprintf(&connections, "  %s: { webhook: { verify: { scheme: none } } }\n", name)
		fmt.Fprintf(&triggers, "  out%d: { connection: %s, run: { publish: { subject: bench.out } } }\n", i, name)
	}
	return "connections:\n" + connections.String() + "triggers:\n" + triggers.String(), names
}

// urls are those of each connection on each daemon.
func (f *fleet) urls(names ...string) (all []string) {
	for _, name := range names {
		for _, d := range f.daemons {
			all = append(all, "http://"+d.addr+"/hooks/"+name)
		}
	}
	return all
}

// drive loads all daemons and returns when every event's turn is done.
func (f *fleet) drive(ctx context.Context, names []string) (result, error) {
	daemons, server, err := f.cpu()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	acks, err := load(ctx, f.s, f.urls(names...)...)
	if err != nil {
		return result{}, err
	}
	err = until(ctx, 5*time.Minute, "every turn is done", func() bool {
		n, err := f.done(ctx)
		return err == nil && n >= f.s.events
	})
	if err != nil {
		return result{}, err
	}
	took := time.Since(began)
	daemonsAfter, serverAfter, err := f.cpu()
	if err != nil {
		return result{}, err
	}
	ends, err := f.daemons[0].ends(ctx, f.s)
	if err != nil {
		return result{}, err
	}
	return result{
		rate: float64(f.s.events) / took.Seconds(), cpu: (daemonsAfter - daemons + serverAfter - server) / time.Duration(f.s.events),
		ack50: quantile(acks, .5), ack99: quantile(acks, .99), handled50: quantile(ends, .5), handled99: quantile(ends, .99),
	}, nil
}

// varz is what the server has received and sent.
type varz struct {
	InMsgs   int64 `json:"in_msgs"`
	OutMsgs  int64 `json:"out_msgs"`
	InBytes  int64 `json:"in_bytes"`
	OutBytes int64 `json:"out_bytes"`
}

// measureIdle prints what daemons with 100 webhooks cost while nothing happens.
func measureIdle(ctx context.Context, s settings) error {
	fmt.Printf("idle for %s, 100 connections, %d partitions\n", s.idle, partitions)
	fmt.Printf("%-10s %10s %10s %12s %12s %14s %14s\n", "daemons", "msg/s in", "msg/s out", "bytes/s in", "bytes/s out", "CPU daemons", "CPU server")
	for _, n := range []int{1, 3} {
		if err := idleFleet(ctx, s, n); err != nil {
			return err
		}
	}
	return nil
}

func idleFleet(ctx context.Context, s settings, n int) error {
	f, err := startServer(ctx, s)
	if err != nil {
		return err
	}
	defer f.stop()
	body, _ := hooks(100)
	if err := f.startDaemons(ctx, n, body); err != nil {
		return err
	}
	// What the start leaves to do is not idling.
	if err := sleep(ctx, 5*time.Second); err != nil {
		return err
	}
	var before, after varz
	if err := getJSON(ctx, f.monitor, &before); err != nil {
		return err
	}
	daemons, server, err := f.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, s.idle); err != nil {
		return err
	}
	if err := getJSON(ctx, f.monitor, &after); err != nil {
		return err
	}
	daemonsAfter, serverAfter, err := f.cpu()
	if err != nil {
		return err
	}
	sec := time.Since(began).Seconds()
	per := func(a, b int64) float64 { return float64(a-b) / sec }
	fmt.Printf("%-10d %10.1f %10.1f %12.0f %12.0f %14.4f %14.4f\n", n, per(after.InMsgs, before.InMsgs), per(after.OutMsgs, before.OutMsgs),
		per(after.InBytes, before.InBytes), per(after.OutBytes, before.OutBytes), (daemonsAfter-daemons).Seconds()/sec, (serverAfter-server).Seconds()/sec)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
