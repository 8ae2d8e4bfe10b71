package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/console"
)

// partitions is how many partitions the turns of a pool have.
const partitions = 32

// fleet is daemons on one NATS server, which is a process of its own.
type fleet struct {
	s       settings
	dir     string
	addr    string // of the server
	monitor string // URL of the server's counters
	server  *exec.Cmd
	daemons []*daemon
}

// startServer starts the nats-server of go.mod on an empty store and returns when JetStream answers.
func startServer(ctx context.Context, s settings) (*fleet, error) {
	dir, err := os.MkdirTemp(s.dir, "fleet-")
	if err != nil {
		return nil, err
	}
	f := &fleet{s: s, dir: dir}
	if f.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	monitor, err := freeAddr()
	if err != nil {
		return nil, err
	}
	f.monitor = "http://" + monitor + "/varz"
	host, port, _ := net.SplitHostPort(f.addr)
	_, monitorPort, _ := net.SplitHostPort(monitor)
	f.server = exec.CommandContext(ctx, natsBinary(s), "-js", "-sd", filepath.Join(dir, "js"), "-a", host, "-p", port, "-m", monitorPort)
	if err := f.server.Start(); err != nil {
		return nil, err
	}
	err = until(ctx, 15*time.Second, "nats-server answers", func() bool {
		nc, err := nats.Connect("nats://" + f.addr)
		if err != nil {
			return false
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
		if err != nil {
			return false
		}
		_, err = js.AccountInfo(ctx)
		return err == nil
	})
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func natsBinary(s settings) string { return filepath.Join(s.dir, "nats-server") }

func buildServer(s settings) error {
	out, err := exec.Command("go", "build", "-o", natsBinary(s), "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return nil
}

// startDaemons starts n daemons with the same configuration, whose connections and triggers are body, and returns when the work is dealt out.
func (f *fleet) startDaemons(ctx context.Context, n int, body string) error {
	for i := range n {
		addr, err := freeAddr()
		if err != nil {
			return err
		}
		dir := filepath.Join(f.dir, fmt.Sprintf("d%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		config, socket := filepath.Join(dir, "triggerd.yaml"), filepath.Join(dir, "a.sock")
		text := fmt.Sprintf("server: { listen: %q, admin: { listen: \"unix:%s\" } }\nnats: { url: \"nats://%s\" }\n%s", addr, socket, f.addr, body)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return err
		}
		d, err := launch(ctx, f.s, config, addr, socket)
		if err != nil {
			return err
		}
		f.daemons = append(f.daemons, d)
	}
	return until(ctx, time.Minute, "every daemon has its share", func() bool {
		list, err := f.daemons[0].list(ctx)
		if err != nil || len(list) != n {
			return false
		}
		sum := 0
		for _, d := range list {
			if d.Partitions < partitions/n || d.Partitions > (partitions+n-1)/n {
				return false
			}
			sum += d.Partitions
		}
		return sum == partitions
	})
}

// stop ends the daemons, then the server, and removes what they stored.
func (f *fleet) stop() {
	for _, d := range f.daemons {
		d.stop(syscall.SIGTERM)
	}
	_ = f.server.Process.Signal(syscall.SIGTERM)
	_ = f.server.Wait()
	_ = os.RemoveAll(f.dir)
}

// cpu is what the daemons have used, and what the server has.
func (f *fleet) cpu() (daemons, server time.Duration, err error) {
	for _, d := range f.daemons {
		c, err := cpuTime(d.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		daemons += c
	}
	server, err = cpuTime(f.server.Process.Pid)
	return daemons, server, err
}

// done counts the finished turns of all daemons.
func (f *fleet) done(ctx context.Context) (sum int, err error) {
	for _, d := range f.daemons {
		n, err := d.done(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// list is what `daemons list` says on this daemon.
func (d *daemon) list(ctx context.Context) ([]console.DaemonInfo, error) {
	client, err := console.Dial("unix:" + d.socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return client.Daemons(ctx)
}

// until polls a condition.
func until(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it took too long"))
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
