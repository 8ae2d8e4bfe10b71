package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

func (c *cli) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain EVENT",
		Short:   "Say for each trigger why an event became a turn or not",
		Long:    "Say for each trigger why an event became a turn or not. EVENT is its sequence, <connection>/<id>, or a unique prefix of that or of the id.",
		Example: "  triggerd explain orders/42",
		Args:    want("EVENT"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			ex, err := b.Explain(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(c, ex, func(w io.Writer) error { return c.writeExplanation(w, ex) })
		}),
	}
}

func (c *cli) writeExplanation(w io.Writer, ex console.Explanation) error {
	e := ex.Event
	_, err := fmt.Fprintf(w, "event %d, %s, %s, %s, decided under configuration %s\n\n",
		e.Seq, cleanLines(e.Connection+"/"+e.ID), cleanLines(e.Type), c.when(e.Time), ex.Version)
	if err != nil {
		return err
	}
	if len(ex.Verdicts) == 0 {
		_, err := fmt.Fprintln(w, "no trigger listens to this connection")
		return err
	}
	return writeTable(w, ex.Verdicts, columns[console.Verdict]{
		header: []string{"TRIGGER", "VERDICT", "TURN", "STATE", "REASON"},
		row: func(v console.Verdict) []string {
			if v.Turn == nil {
				return []string{v.Trigger, v.Verdict, "", "", v.Reason}
			}
			return []string{v.Trigger, v.Verdict, short(v.Turn.Hash), v.Turn.State, v.Reason}
		},
		whole: true,
	})
}
