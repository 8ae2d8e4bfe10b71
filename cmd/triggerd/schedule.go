package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/cron"
)

func (c *cli) scheduleCommand() *cobra.Command {
	return c.group("schedule", "See when schedules fire, and fire past slots", c.scheduleNext(), c.schedulePreview(), c.scheduleBackfill())
}

// slotRow is a slot as `schedule next` shows it.
type slotRow struct {
	Connection string `json:"connection,omitempty"`
	Local      string `json:"local"` // in the schedule's zone
	UTC        string `json:"utc"`
	Note       string `json:"note,omitempty"` // what daylight saving does to it
}

func rowOf(connection string, s cron.Schedule, slot time.Time) slotRow {
	return slotRow{
		Connection: connection, Local: slot.In(s.Location()).Format(time.RFC3339), UTC: slot.UTC().Format(time.RFC3339), Note: cron.Note(s, slot),
	}
}

// slotColumns shows slots of one schedule.
var slotColumns = columns[slotRow]{
	header: []string{"LOCAL", "UTC", "NOTE"}, row: func(r slotRow) []string { return []string{r.Local, r.UTC, r.Note} }, whole: true,
}

// named is a schedule with the connection that has it; "" for one that was given on the command line.
type named struct {
	name string
	s    cron.Schedule
}

func (c *cli) scheduleNext() *cobra.Command {
	var expr, zone, from string
	var seconds, jsonl bool
	var count int
	cmd := &cobra.Command{
		Use:   "next [CONNECTION...]",
		Short: "Show when schedules fire next",
		Long: "Show when schedules fire next, in their zone and in UTC, with what daylight saving does to a slot. Without names it is every schedule of the\n" +
			"configuration; with --cron it is that expression, and no configuration is needed. No daemon is needed either. Jitter is not shown: it delays the\n" +
			"event, the slot stays.",
		Example: "  triggerd schedule next\n  triggerd schedule next nightly --count 10\n  triggerd schedule next --cron '30 2 * * *' --timezone America/New_York --from 2027-03-13T00:00:00Z",
		Args:    cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.StringVar(&expr, "cron", "", "an expression in place of the configuration's schedules")
	f.StringVar(&zone, "timezone", "", "IANA zone of --cron")
	f.BoolVar(&seconds, "seconds", false, "--cron has six fields, the first of which is the second")
	f.StringVar(&from, "from", "", "show slots after this instant, RFC 3339 (default now)")
	f.IntVar(&count, "count", 5, "how many slots of each schedule")
	f.BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	cmd.RunE = c.run(func(_ *cobra.Command, args []string) error {
		after := c.now()
		if from != "" {
			var err error
			if after, err = time.Parse(time.RFC3339, from); err != nil {
				return usagef("--from %q is no instant such as 2027-03-13T00:00:00Z", from)
			}
		}
		if count < 1 || count > 10_000 {
			return usagef("--count wants 1 to 10000")
		}
		list, err := c.schedules(expr, zone, seconds, args)
		if err != nil {
			return err
		}
		return c.printSlots(list, after, count, jsonl)
	})
	return cmd
}

// schedules are those that the command line names.
func (c *cli) schedules(expr, zone string, seconds bool, names []string) ([]named, error) {
	if expr == "" {
		if zone != "" || seconds {
			return nil, usagef("--timezone and --seconds are for --cron")
		}
		return c.configured(names)
	}
	switch {
	case len(names) > 0:
		return nil, usagef("give connections or --cron, not both")
	case zone == "":
		return nil, usagef("--cron needs --timezone; UTC is one")
	}
	loc, err := cron.Zone(zone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", zone, err)
	}
	s, err := cron.Parse(expr, cron.Options{Zone: loc, Seconds: seconds})
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w", expr, err)
	}
	return []named{{s: s}}, nil
}

// configured are the configuration's schedules with these names, or all of them.
func (c *cli) configured(names []string) (list []named, err error) {
	o, err := c.needConfig()
	if err != nil {
		return nil, err
	}
	o.AllowUnset = true
	cfg, err := configs.Load(o)
	if err != nil {
		return nil, err
	}
	all := len(names) == 0
	if all {
		for name, conn := range cfg.Connections {
			if conn.Cron != nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
	}
	for _, name := range names {
		conn := cfg.Connections[name]
		if conn.Cron == nil {
			return nil, fmt.Errorf("connection %q is no schedule of this configuration", name)
		}
		s, err := conn.Cron.Build()
		if err != nil {
			return nil, fmt.Errorf("connection %s: %w", name, err)
		}
		list = append(list, named{name: name, s: s})
	}
	if len(list) == 0 {
		return nil, errors.New("the configuration has no schedule")
	}
	return list, nil
}

func (c *cli) printSlots(list []named, after time.Time, count int, jsonl bool) error {
	if jsonl && c.json {
		return usagef("give --json or --jsonl, not both")
	}
	var rows []slotRow
	for _, n := range list {
		slot := after
		for range count {
			if slot = n.s.Next(slot); slot.IsZero() {
				break
			}
			rows = append(rows, rowOf(n.name, n.s, slot))
		}
	}
	cols := slotColumns
	if list[0].name != "" {
		cols.header = append([]string{"CONNECTION"}, cols.header...)
		cols.row = func(r slotRow) []string { return append([]string{r.Connection}, slotColumns.row(r)...) }
	}
	return printList(c, jsonl, rows, cols)
}

// oddNight is a change of the clock as `schedule preview` shows it.
type oddNight struct {
	At    string    `json:"at"`   // the first instant after it, local
	Kind  string    `json:"kind"` // "gap" or "fold"
	By    string    `json:"by"`   // by how much the clock is put forward or back
	Slots []slotRow `json:"slots"`
	Lost  []string  `json:"lost,omitempty"` // times of day that do not exist and for which nothing fires
}

// preview is what `schedule preview` shows.
type preview struct {
	Connection string     `json:"connection"`
	Schedule   string     `json:"schedule"`
	Timezone   string     `json:"timezone"`
	Next       []slotRow  `json:"next"`
	Nights     []oddNight `json:"clock_changes"` // within a year
}

func (c *cli) schedulePreview() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview CONNECTION",
		Short: "Show what a schedule does in the year ahead when the clock changes",
		Long: "Show a schedule's next slots, and each night of the year ahead on which its zone's clock is put forward or back: what fires from three hours\n" +
			"before to three hours after, and which times of day do not exist. No daemon is needed.",
		Example: "  triggerd schedule preview nightly",
		Args:    want("CONNECTION"),
	}
	cmd.RunE = c.run(func(_ *cobra.Command, args []string) error {
		list, err := c.configured(args)
		if err != nil {
			return err
		}
		p := previewOf(list[0], c.now())
		return printOne(c, p, p.write)
	})
	return cmd
}

func previewOf(n named, now time.Time) preview {
	p := preview{Connection: n.name, Schedule: n.s.String(), Timezone: n.s.Location().String(), Next: []slotRow{}, Nights: []oddNight{}}
	for slot := n.s.Next(now); !slot.IsZero() && len(p.Next) < 3; slot = n.s.Next(slot) {
		p.Next = append(p.Next, rowOf("", n.s, slot))
	}
	const around = 3 * time.Hour
	for _, ch := range cron.Changes(n.s.Location(), now, now.AddDate(1, 0, 0)) {
		night := oddNight{At: ch.At.Format(time.RFC3339), Kind: "gap", By: (ch.After - ch.Before).String(), Slots: []slotRow{}, Lost: cron.Lost(n.s, ch)}
		if ch.After < ch.Before {
			night.Kind, night.By = "fold", (ch.Before - ch.After).String()
		}
		for slot := n.s.Next(ch.At.Add(-around - 1)); !slot.IsZero() && slot.Before(ch.At.Add(around)) && len(night.Slots) < 100; slot = n.s.Next(slot) {
			night.Slots = append(night.Slots, rowOf("", n.s, slot))
		}
		p.Nights = append(p.Nights, night)
	}
	return p
}

func (p preview) write(w io.Writer) error {
	if err := fields(w, "connection", p.Connection, "schedule", p.Schedule, "timezone", p.Timezone); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "\nnext"); err != nil {
		return err
	}
	if err := writeTable(w, p.Next, slotColumns); err != nil {
		return err
	}
	for _, n := range p.Nights {
		what := "the clock is put forward by " + n.By
		if n.Kind == "fold" {
			what = "the clock is put back by " + n.By
		}
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", n.At, what); err != nil {
			return err
		}
		if len(n.Slots) > 0 {
			if err := writeTable(w, n.Slots, slotColumns); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintln(w, "nothing is due from three hours before to three hours after"); err != nil {
			return err
		}
		for _, lost := range n.Lost {
			if _, err := fmt.Fprintf(w, "%s does not exist on this day, and nothing fires for it\n", lost); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cli) scheduleBackfill() *cobra.Command {
	var req console.BackfillRequest
	cmd := &cobra.Command{
		Use:   "backfill CONNECTION FROM TO",
		Short: "Fire the slots of a past interval",
		Long: "Fire the slots of a past interval, both ends included, in order, as a batch that the payload's field backfill names. Their turns wait for each other\n" +
			"and for their trigger's limits, also where overlap would skip them. Slots that have fired do not fire again, unless --again. FROM and TO are\n" +
			"instants (RFC 3339).",
		Example: "  triggerd schedule backfill nightly 2026-11-01T00:00:00Z 2026-11-07T23:59:59Z --dry-run",
		Args:    want("CONNECTION", "FROM", "TO"),
	}
	cmd.Flags().BoolVar(&req.Again, "again", false, "fire slots that have fired, too")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "say what would fire, and fire nothing")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, args []string) (err error) {
		req.Connection = args[0]
		for i, to := range []*time.Time{&req.From, &req.To} {
			if *to, err = time.Parse(time.RFC3339, args[i+1]); err != nil {
				return usagef("%q is no instant such as 2026-11-01T00:00:00Z", args[i+1])
			}
		}
		res, err := b.Backfill(ctx, req)
		if err != nil {
			return err
		}
		return printOne(c, res, func(w io.Writer) error { return writeBackfill(w, req, res) })
	})
	return cmd
}

func writeBackfill(w io.Writer, req console.BackfillRequest, res console.BackfillResult) error {
	if len(res.Slots) == 0 {
		_, err := fmt.Fprintf(w, "%s has no slot in this interval\n", req.Connection)
		return err
	}
	if res.Batch != "" {
		if err := fields(w, "batch", res.Batch); err != nil {
			return err
		}
	}
	return writeTable(w, res.Slots, columns[console.BackfilledSlot]{
		header: []string{"LOCAL", "UTC", "EVENT", "STATE"},
		row: func(s console.BackfilledSlot) []string {
			return []string{s.Local, s.UTC.Format(time.RFC3339), s.Event, s.State}
		},
		whole: true,
	})
}
