package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

func (c *cli) daemonsCommand() *cobra.Command {
	return c.group("daemons", "See the daemons that share one NATS", c.daemonsList())
}

func (c *cli) daemonsList() *cobra.Command {
	var jsonl bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the daemons with their roles and heartbeats",
		Long: "List the daemons on this NATS. One of them is the owner: it runs the inboxes, the sources and the turns. The others are standbys, which take\n" +
			"webhooks and take over when the owner is gone. HEARD is how long ago a daemon's heartbeat came, as the daemon that answers (*) has heard it;\n" +
			"there is one each second.",
		Example: "  triggerd daemons list",
		Args:    want(),
	}
	cmd.Flags().BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
		if jsonl && c.json {
			return usagef("give --json or --jsonl, not both")
		}
		list, err := b.Daemons(ctx)
		if err != nil {
			return err
		}
		return printList(c, jsonl, list, columns[console.DaemonInfo]{
			header: []string{"DAEMON", "ROLE", "HOST", "PID", "VERSION", "STARTED", "HEARD"},
			row: func(d console.DaemonInfo) []string {
				id, role := d.ID, "standby"
				if d.Self {
					id += " *"
				}
				if d.Owner {
					role = "owner"
				}
				heard := time.Duration(d.Age * float64(time.Second)).Round(100 * time.Millisecond)
				return []string{id, role, d.Host, strconv.Itoa(d.PID), d.Version, c.when(d.Started), heard.String() + " ago"}
			},
			whole: true,
		})
	})
	return cmd
}
