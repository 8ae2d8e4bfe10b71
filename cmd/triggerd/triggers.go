package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
)

func (c *cli) triggersCommand() *cobra.Command {
	return c.group("triggers", "Look at triggers, pause and resume them", c.triggersList(), c.triggersPause(), c.triggersResume())
}

func (c *cli) triggersList() *cobra.Command {
	var jsonl bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List triggers with their overlap rule and what waits for them",
		Example: "  triggerd triggers list",
		Args:    want(),
	}
	cmd.Flags().BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
		if jsonl && c.json {
			return usagef("give --json or --jsonl, not both")
		}
		list, err := b.Triggers(ctx)
		if err != nil {
			return err
		}
		return printList(c, jsonl, list, columns[console.TriggerInfo]{
			header: []string{"TRIGGER", "CONNECTIONS", "EVENTS", "ACTION", "OVERLAP", "QUEUED", "RUNNING", "HELD", "DEAD", "STATE"},
			row: func(t console.TriggerInfo) []string {
				events := strings.Join(t.Events, ",")
				if events == "" {
					events = "all"
				}
				return []string{t.Name, strings.Join(t.Connections, ","), events, t.Action, t.Overlap,
					number(t.Queued), number(t.Running), number(t.Held), number(t.Dead), c.triggerState(t)}
			},
		})
	})
	return cmd
}

// triggerState is "active", "disabled" or "paused" with what is known of the pause.
func (c *cli) triggerState(t console.TriggerInfo) string {
	switch {
	case !t.Enabled:
		return "disabled"
	case !t.Paused:
		return "active"
	}
	s := "paused"
	if t.PausedUntil != nil {
		s += " until " + c.when(*t.PausedUntil)
	}
	if t.PauseNote != "" {
		s += " (" + t.PauseNote + ")"
	}
	return s
}

func (c *cli) triggersPause() *cobra.Command {
	var untilText, note string
	cmd := &cobra.Command{
		Use:   "pause TRIGGER",
		Short: "Let a trigger start nothing until it is resumed",
		Long: "Let a trigger start nothing until it is resumed. Its events still open turns, which are held or skipped as its `while_paused` says;\n" +
			"turns that run go on.",
		Example: "  triggerd triggers pause nightly --until 2h --note 'database move'",
		Args:    want("TRIGGER"),
	}
	cmd.Flags().StringVar(&untilText, "until", "", "end of the pause: a time (2006-01-02 15:04, RFC 3339) or a duration from now (90m, 2d)")
	cmd.Flags().StringVar(&note, "note", "", "why, for the others")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, args []string) error {
		p := console.PauseRequest{Note: note}
		if cmd.Flags().Changed("until") {
			until, err := c.parseUntil(untilText)
			if err != nil {
				return err
			}
			p.Until = &until
		}
		t, err := b.PauseTrigger(ctx, args[0], p)
		if err != nil {
			return err
		}
		return c.printTrigger(t)
	})
	return cmd
}

func (c *cli) triggersResume() *cobra.Command {
	return &cobra.Command{
		Use:     "resume TRIGGER",
		Short:   "End a trigger's pause and let its held turns run",
		Example: "  triggerd triggers resume nightly",
		Args:    want("TRIGGER"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			t, err := b.ResumeTrigger(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printTrigger(t)
		}),
	}
}

func (c *cli) printTrigger(t console.TriggerInfo) error {
	return printOne(c, t, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "trigger %s is %s; queued %d, running %d, held %d\n", t.Name, cleanLines(c.triggerState(t)), t.Queued, t.Running, t.Held)
		return err
	})
}

// parseUntil reads a time in the reader's zone, or a duration from now. It must lie ahead.
func (c *cli) parseUntil(s string) (time.Time, error) {
	now := c.now()
	if d, err := configs.ParseDuration(s); err == nil && d > 0 {
		return now.Add(time.Duration(d)).Truncate(time.Second), nil
	}
	zone := time.Local
	if c.utc {
		zone = time.UTC
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02"} {
		t, err := time.ParseInLocation(layout, s, zone)
		if err != nil {
			continue
		}
		if !t.After(now) {
			return time.Time{}, usagef("--until is %s, which has passed", c.when(t))
		}
		return t, nil
	}
	return time.Time{}, usagef("--until is %q: use a time as 2006-01-02 15:04 or RFC 3339, or a duration as 90m or 2d", s)
}
