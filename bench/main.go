// Command bench measures the path from a webhook to a finished turn against the raw JetStream pipeline on the same machine in the same run,
// and the daemon's memory and start time.
//
//	go run ./bench                      # everything: about three minutes
//	go run ./bench -only interval       # one comparison: interval or group
//	go run ./bench -events 200000 -footprint=false
//	go run ./bench -daemons             # several daemons on one NATS server: throughput, idle cost, takeover
//	go run ./bench -daemons -only idle
//	go run ./bench -schedules 1000      # so many schedules in one daemon
//
// Both sides are processes of their own under the same closed-loop load: each client posts 1 KiB and waits for the answer.
// The raw side stores the body in JetStream, answers, and acknowledges it in one durable consumer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

type settings struct {
	events, clients, size int
	binary, dir           string
	idle                  time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "raw" {
		if err := serveRaw(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench raw:", err)
			os.Exit(1)
		}
		return
	}
	var s settings
	only := flag.String("only", "", "interval or group: one comparison; with -daemons throughput, idle or takeover")
	several := flag.Bool("daemons", false, "measure several daemons on one NATS server")
	backlogs := flag.String("backlogs", "10,1000,100000", "with -daemons: unfinished turns at each takeover")
	flag.DurationVar(&s.idle, "idle", 15*time.Second, "with -daemons: how long idle daemons are measured")
	schedules := flag.Int("schedules", 0, "measure a daemon with so many schedules")
	footprint := flag.Bool("footprint", true, "measure memory and start time")
	flag.IntVar(&s.events, "events", 0, "events of each run (default 30000, with -daemons 20000)")
	flag.IntVar(&s.clients, "clients", 64, "closed-loop clients")
	flag.IntVar(&s.size, "size", 1024, "bytes of a body")
	flag.StringVar(&s.dir, "dir", "", "where stores are created; default the temporary folder")
	flag.Parse()
	if s.events == 0 {
		s.events = 30000
		if *several {
			s.events = 20000
		}
	}
	if !*several {
		*backlogs = ""
	}
	if err := run(s, *only, *backlogs, *footprint, *schedules); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures several daemons when there are backlogs, else one.
func run(s settings, only, backlogs string, footprint bool, schedules int) (err error) {
	if s.dir, err = os.MkdirTemp(s.dir, "triggerd-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.dir) }()
	s.binary = filepath.Join(s.dir, "triggerd")
	if out, err := exec.Command("go", "build", "-o", s.binary, "./cmd/triggerd").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	fmt.Printf("%d events of %d bytes, %d clients, %d cores, %s\n\n", s.events, s.size, s.clients, runtime.NumCPU(), runtime.Version())
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if schedules > 0 {
		return runSchedules(ctx, s, schedules)
	}
	if backlogs != "" {
		return runDaemons(ctx, s, only, backlogs)
	}
	for _, c := range []struct{ name, raw, ours string }{
		{"interval", "interval", "interval"}, // neither side syncs before it answers
		{"group", "always", "group"},         // both survive a power loss
	} {
		if only != "" && only != c.name {
			continue
		}
		if err := compare(ctx, s, c.raw, c.ours); err != nil {
			return err
		}
	}
	if footprint {
		return measureFootprint(ctx, s)
	}
	return nil
}

func compare(ctx context.Context, s settings, raw, ours string) error {
	r, err := runRaw(ctx, s, raw, "")
	if err != nil {
		return fmt.Errorf("raw pipeline: %w", err)
	}
	t, err := runTriggerd(ctx, s, ours)
	if err != nil {
		return fmt.Errorf("triggerd: %w", err)
	}
	fmt.Printf("%-34s %9s %10s %12s %12s %14s %14s\n", "", "events/s", "CPU each", "answer p50", "answer p99", "to end p50", "to end p99")
	r.print("raw JetStream, sync " + raw)
	t.print("triggerd, sync " + ours)
	fmt.Printf("ratio %.2f\n\n", t.rate/r.rate)
	return nil
}

// result is what one run measured: the rate up to the last event's end, and the times from the start of a request to its answer and to the event's end.
type result struct {
	rate                 float64
	cpu                  time.Duration // of the server process, for each event
	ack50, ack99         time.Duration
	handled50, handled99 time.Duration
}

func (r result) print(name string) {
	fmt.Printf("%-34s %9.0f %10s %12s %12s %14s %14s\n", name, r.rate, r.cpu.Round(time.Microsecond), short(r.ack50), short(r.ack99), short(r.handled50), short(r.handled99))
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
