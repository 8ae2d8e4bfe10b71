package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

func (c *cli) fireCommand() *cobra.Command {
	var data string
	var req console.FireRequest
	cmd := &cobra.Command{
		Use:   "fire TRIGGER",
		Short: "Start a trigger by hand",
		Long: "Start a trigger by hand, with an event that only this trigger sees. Its filter is not asked; its thread, overlap rule, limits and pause apply.\n" +
			"The same --id again is the same event: nothing runs twice.",
		Example: "  triggerd fire ship --data '{\"order\": 42}'\n  triggerd fire ship --data @order.json\n  triggerd fire ship --event orders/42",
		Args:    want("TRIGGER"),
	}
	cmd.Flags().StringVar(&data, "data", "", "the payload: text, @FILE, or - for standard input")
	cmd.Flags().StringVar(&req.Event, "event", "", "take the payload and type of this stored event")
	cmd.Flags().StringVar(&req.ID, "id", "", "the event's id (default: a fresh one)")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, args []string) error {
		if cmd.Flags().Changed("data") && req.Event != "" {
			return usagef("give --data or --event, not both")
		}
		var err error
		req.Trigger = args[0]
		if req.Data, err = c.readData(data); err != nil {
			return err
		}
		res, err := b.Fire(ctx, req)
		if err != nil {
			return err
		}
		return printOne(c, res, func(w io.Writer) error {
			triggers, err := b.Triggers(ctx)
			if err != nil {
				triggers = nil // the event is stored: what follows is a comfort, not a reason to call it a failure
			}
			return c.writeFired(w, req.Trigger, res, triggers)
		})
	})
	return cmd
}

// readData reads what --data names.
func (c *cli) readData(data string) ([]byte, error) {
	from := c.In
	switch {
	case data == "-":
	case strings.HasPrefix(data, "@"):
		f, err := os.Open(data[1:])
		if err != nil {
			return nil, fmt.Errorf("read --data: %w", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	default:
		from = strings.NewReader(data)
	}
	b, err := io.ReadAll(io.LimitReader(from, console.MaxFireData+1))
	if err == nil && len(b) > console.MaxFireData {
		err = errors.New("more than " + size(console.MaxFireData))
	}
	if err != nil {
		return nil, fmt.Errorf("read --data: %w", err)
	}
	return b, nil
}

// writeFired says what was started, and what stands between it and running.
func (c *cli) writeFired(w io.Writer, trigger string, res console.FireResult, triggers []console.TriggerInfo) error {
	verb := "fired"
	if res.Duplicate {
		verb = "fired before, nothing new runs:"
	}
	applies := ""
	for _, t := range triggers {
		if t.Name == trigger {
			applies = fmt.Sprintf("overlap %s, trigger %s; queued %d, running %d, held %d", t.Overlap, c.triggerState(t), t.Queued, t.Running, t.Held)
		}
	}
	if _, err := fmt.Fprintf(w, "%s %s\n", verb, trigger); err != nil {
		return err
	}
	return fields(w, "event", res.Event, "turn", res.Turn, "key", res.Key, "applies", applies, "note", res.Note)
}
