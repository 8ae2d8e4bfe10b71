package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/triggerd/triggerd/console"
)

// runSchedules measures a daemon with n schedules: start, memory, and how late ticks are stored when a tenth of them, then all, are due at one instant.
func runSchedules(ctx context.Context, s settings, n int) error {
	base, err := scheduled(ctx, s, 1, 0)
	if err != nil {
		return err
	}
	fmt.Printf("%-26s %10s %10s %14s %12s %12s %12s\n", "schedules, due at once", "start", "RSS", "per schedule", "late p50", "late p99", "late max")
	for _, due := range []int{n / 10, n} {
		r, err := scheduled(ctx, s, n, due)
		if err != nil {
			return err
		}
		fmt.Printf("%-26s %10s %7d MB %11d B %12s %12s %12s\n", fmt.Sprintf("%d, %d", n, due), r.took.Round(time.Millisecond), r.idle>>20,
			(r.idle-base.idle)/int64(n), quantile(r.late, .5).Round(time.Millisecond), quantile(r.late, .99).Round(time.Millisecond), quantile(r.late, 1).Round(time.Millisecond))
	}
	return nil
}

// ofSchedules is what a run of scheduled has found.
type ofSchedules struct {
	took time.Duration // to the start
	idle int64         // bytes of RSS before anything was due
	late []time.Duration
}

// scheduled runs a daemon with n schedules of which some are due at the next minute and the others once a year.
func scheduled(ctx context.Context, s settings, n, due int) (r ofSchedules, err error) {
	dir, err := os.MkdirTemp(s.dir, "schedules-")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if left := time.Until(nextMinute()); left < 20*time.Second { // the start must not meet it
		if err := sleep(ctx, left+time.Second); err != nil {
			return r, err
		}
	}
	addr, err := freeAddr()
	if err != nil {
		return r, err
	}
	config, socket := filepath.Join(dir, "triggerd.yaml"), filepath.Join(dir, "a.sock")
	var text strings.Builder
	fmt.Fprintf(&text, "server: { listen: %q, admin: { listen: \"unix:%s\" } }\nnats: { embedded: { store: %q, sync: interval, listen: \"off\" } }\nconnections:\n",
		addr, socket, filepath.Join(dir, "data"))
	for i := range n {
		expr := "0 0 1 1 *"
		if i < due {
			expr = "* * * * *"
		}
		fmt.Fprintf(&text, "  s%d: { cron: { schedule: %q, timezone: Europe/London } }\n", i, expr)
	}
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		return r, err
	}
	d, err := launch(ctx, s, config, addr, socket)
	if err != nil {
		return r, err
	}
	defer d.stop(syscall.SIGTERM)
	r.took = d.took
	if err := sleep(ctx, 5*time.Second); err != nil { // what the start leaves to do
		return r, err
	}
	if r.idle, err = d.rss(); err != nil || due == 0 {
		return r, err
	}
	r.late, err = d.lateness(ctx, nextMinute(), due)
	return r, err
}

func nextMinute() time.Time { return time.Now().Truncate(time.Minute).Add(time.Minute) }

// lateness waits for the ticks of a slot and says how long after it each of them was received.
func (d *daemon) lateness(ctx context.Context, slot time.Time, n int) (late []time.Duration, err error) {
	client, err := console.Dial("unix:" + d.socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	if err := sleep(ctx, time.Until(slot)); err != nil {
		return nil, err
	}
	err = until(ctx, 50*time.Second, "every schedule has fired", func() bool {
		late = nil
		events, err := client.Events(ctx, console.EventQuery{Type: "tick", Limit: 2 * n})
		for _, ev := range events {
			if ev.Time.Equal(slot) {
				late = append(late, ev.Received.Sub(slot))
			}
		}
		return err == nil && len(late) == n
	})
	return late, err
}
