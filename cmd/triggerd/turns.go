package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

// turnStates are the states that a turn can be in (docs/concepts.md). A misspelt one would select nothing and look like good news.
var turnStates = []string{"queued", "running", "failed", "held", "done", "dead", "skipped", "cancelled", "parked"}

// fullHash is the length of a turn's whole hash.
const fullHash = 26

func (c *cli) turnsCommand() *cobra.Command {
	return c.group("turns", "Look at turns, try them again or stop them", c.turnsList(), c.turnsShow(), c.turnsRetry(), c.turnsCancel())
}

func (c *cli) turnsList() *cobra.Command {
	var flags listFlags
	var q console.TurnQuery
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List turns, newest first",
		Example: "  triggerd turns list --trigger ship --state dead",
		Args:    want(),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&q.Trigger, "trigger", "", "only of this trigger")
	cmd.Flags().StringVar(&q.Connection, "connection", "", "only of this connection's events")
	cmd.Flags().StringVar(&q.State, "state", "", "only in this state: "+strings.Join(turnStates, ", "))
	cmd.Flags().StringVar(&q.After, "after", "", "continue after this turn, the last one of the page before")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
		if err := flags.check(c); err != nil {
			return err
		}
		if q.State != "" && !slices.Contains(turnStates, q.State) {
			return usagef("--state is %q: use one of %s", q.State, strings.Join(turnStates, ", "))
		}
		q.Limit = flags.limit
		if q.After != "" && len(q.After) != fullHash {
			after, err := b.Turn(ctx, q.After) // tables show a part of the hash
			if err != nil {
				return err
			}
			q.After = after.Hash
		}
		list, err := b.Turns(ctx, q)
		if err != nil {
			return err
		}
		return printList(c, flags.jsonl, list, c.turnColumns())
	})
	return cmd
}

func (c *cli) turnColumns() columns[console.TurnInfo] {
	return columns[console.TurnInfo]{
		header: []string{"TURN", "TRIGGER", "EVENT", "THREAD", "STATE", "ATTEMPT", "OPENED", "FINISHED", "ERROR"},
		row: func(t console.TurnInfo) []string {
			return []string{short(t.Hash), t.Trigger, t.Connection + "/" + t.EventID, t.Thread, t.State, number(t.Attempt), c.when(t.Opened), c.whenPtr(t.Finished), t.Error}
		},
	}
}

const turnArgument = "TURN is its hash, a unique prefix of it, or its key <connection>:<trigger>:<event id>."

func (c *cli) turnsShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show TURN",
		Short:   "Show one turn: its event, its history and what it put out",
		Long:    "Show one turn: its event, its history and what it put out. " + turnArgument,
		Example: "  triggerd turns show orders:ship:42",
		Args:    want("TURN"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			t, err := b.Turn(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(c, t, func(w io.Writer) error { return c.writeTurn(w, t) })
		}),
	}
}

func (c *cli) turnsRetry() *cobra.Command {
	return &cobra.Command{
		Use:     "retry TURN",
		Short:   "Run a finished turn's event again, as a new turn linked to it",
		Long:    "Run a finished turn's event again, as a new turn linked to it and at the end of its thread. " + turnArgument,
		Example: "  triggerd turns retry orders:ship:42",
		Args:    want("TURN"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			t, err := b.RetryTurn(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(c, t, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "opened turn %s (%s), %s, a retry of %s\n", short(t.Hash), cleanLines(t.Key), t.State, cleanLines(t.ReplayOf))
				return err
			})
		}),
	}
}

func (c *cli) turnsCancel() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel TURN",
		Short:   "Stop a turn, and wait until it has stopped",
		Long:    "Stop a turn that waits or runs, and wait until it has stopped. " + turnArgument,
		Example: "  triggerd turns cancel orders:ship:42",
		Args:    want("TURN"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			t, err := b.CancelTurn(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(c, t, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "turn %s (%s) is %s\n", short(t.Hash), cleanLines(t.Key), t.State)
				return err
			})
		}),
	}
}
