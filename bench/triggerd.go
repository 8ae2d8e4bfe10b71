package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/triggerd/triggerd/console"
)

// daemon is a triggerd under measurement.
type daemon struct {
	cmd    *exec.Cmd
	addr   string
	socket string
	took   time.Duration // from start to ready
	ended  chan struct{}
}

func configure(s settings, dir, sync, addr string) (path, socket string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	socket = filepath.Join(dir, "a.sock")
	path = filepath.Join(dir, "triggerd.yaml")
	text := fmt.Sprintf(`server: { listen: %q, admin: { listen: "unix:%s" } }
nats: { embedded: { store: %q, sync: %s, listen: "off" } }
connections:
  in: { webhook: { verify: { scheme: none } } }
triggers:
  out: { connection: in, run: { publish: { subject: bench.out } } }
`, addr, socket, filepath.Join(dir, "data"), sync)
	return path, socket, os.WriteFile(path, []byte(text), 0o600)
}

// startDaemon starts the binary on dir and returns when it says that it is ready.
func startDaemon(ctx context.Context, s settings, dir, sync string) (*daemon, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config, socket, err := configure(s, dir, sync, addr)
	if err != nil {
		return nil, err
	}
	return launch(ctx, s, config, addr, socket)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// launch starts the binary with a configuration that names addr and socket.
func launch(ctx context.Context, s settings, config, addr, socket string) (*daemon, error) {
	d := &daemon{addr: addr, socket: socket, ended: make(chan struct{})}
	var err error
	d.cmd = exec.CommandContext(ctx, s.binary, "serve", "--config", config, "--log-format", "json")
	logs, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.ended)
		sc := bufio.NewScanner(logs)
		for sc.Scan() {
			if strings.Contains(sc.Text(), "triggerd is ready") {
				d.took = time.Since(began)
				close(ready)
			} else if strings.Contains(sc.Text(), `"error"`) {
				fmt.Fprintln(os.Stderr, sc.Text())
			}
		}
		_ = d.cmd.Wait()
	}()
	select {
	case <-ready:
		return d, nil
	case <-d.ended:
		return nil, errors.New("the daemon ended before it was ready")
	}
}

func (d *daemon) stop(sig syscall.Signal) {
	_ = d.cmd.Process.Signal(sig)
	<-d.ended
}

// done reads how many turns are done from the metrics.
func (d *daemon) done(ctx context.Context) (int, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, `triggerd_turns_finished_total{state="done"} `); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return int(f), err
		}
	}
	return 0, nil
}

// rss is the resident memory in bytes.
func (d *daemon) rss() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// drive loads the daemon and returns when every event's turn is done.
func (d *daemon) drive(ctx context.Context, s settings) ([]time.Duration, time.Duration, error) {
	before, err := d.done(ctx)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	acks, err := load(ctx, s, "http://"+d.addr+"/hooks/in")
	if err != nil {
		return nil, 0, err
	}
	for {
		n, err := d.done(ctx)
		if err != nil {
			return nil, 0, err
		}
		if n >= before+s.events {
			return acks, time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%d of %d turns are done: %w", n-before, s.events, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func runTriggerd(ctx context.Context, s settings, sync string) (result, error) {
	dir := filepath.Join(s.dir, "ours-"+sync)
	defer func() { _ = os.RemoveAll(dir) }()
	d, err := startDaemon(ctx, s, dir, sync)
	if err != nil {
		return result{}, err
	}
	defer d.stop(syscall.SIGTERM)
	acks, took, err := d.drive(ctx, s)
	if err != nil {
		return result{}, err
	}
	cpu, err := cpuTime(d.cmd.Process.Pid)
	if err != nil {
		return result{}, err
	}
	ends, err := d.ends(ctx, s)
	if err != nil {
		return result{}, err
	}
	return result{
		cpu: cpu / time.Duration(s.events), rate: float64(s.events) / took.Seconds(), ack50: quantile(acks, .5), ack99: quantile(acks, .99),
		handled50: quantile(ends, .5), handled99: quantile(ends, .99),
	}, nil
}

// ends lists how long each event took to its turn's end, and fails unless each has a turn that is done.
func (d *daemon) ends(ctx context.Context, s settings) ([]time.Duration, error) {
	client, err := console.Dial("unix:" + d.socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ts, err := client.Turns(ctx, console.TurnQuery{Limit: -1})
	if err != nil {
		return nil, err
	}
	var ends []time.Duration
	for _, t := range ts {
		if b, ok := begun(t.EventID); ok && t.Finished != nil && t.State == "done" {
			ends = append(ends, t.Finished.Sub(b))
		}
	}
	if len(ends) != s.events {
		return nil, fmt.Errorf("%d of %d events have a done turn", len(ends), s.events)
	}
	return ends, nil
}

// measureFootprint prints memory when idle and after 100,000 events, and the start time with those in the store.
func measureFootprint(ctx context.Context, s settings) error {
	s.events = 100_000
	dir := filepath.Join(s.dir, "footprint")
	defer func() { _ = os.RemoveAll(dir) }()
	d, err := startDaemon(ctx, s, dir, "group")
	if err != nil {
		return err
	}
	idle, err := d.rss()
	if err != nil {
		return err
	}
	fmt.Printf("start on an empty store: %s, RSS idle: %d MiB\n", d.took.Round(time.Millisecond), idle>>20)
	if _, took, err := d.drive(ctx, s); err != nil {
		return err
	} else if full, err := d.rss(); err != nil {
		return err
	} else {
		fmt.Printf("RSS after %d events (in %s): %d MiB\n", s.events, took.Round(time.Second), full>>20)
	}
	for _, how := range []struct {
		name string
		sig  syscall.Signal
	}{{"SIGTERM", syscall.SIGTERM}, {"kill -9", syscall.SIGKILL}, {"kill -9", syscall.SIGKILL}} {
		d.stop(how.sig)
		if d, err = startDaemon(ctx, s, dir, "group"); err != nil {
			return err
		}
		now, err := d.rss()
		if err != nil {
			return err
		}
		fmt.Printf("start with them after %s: %s, RSS %d MiB\n", how.name, d.took.Round(time.Millisecond), now>>20)
	}
	d.stop(syscall.SIGTERM)
	return nil
}
