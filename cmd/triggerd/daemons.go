package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
		Short: "List the daemons with what they own and their heartbeats",
		Long: "List the daemons on this NATS, which share the work: each connection's inbox and source, and each of the 32 partitions of turns, has one owner.\n" +
			"A standby owns nothing just now. What is \"starting\" is owned and about to run: its new owner reads first what is unfinished. HEARD is how long ago a daemon's heartbeat came, as the daemon that answers (*) has heard it; there is one\n" +
			"each second.",
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
			header: []string{"DAEMON", "ROLE", "HOST", "PID", "VERSION", "CONFIG", "LABELS", "PARTITIONS", "CONNECTIONS", "STARTED", "HEARD"},
			row: func(d console.DaemonInfo) []string {
				id := d.ID
				if d.Self {
					id += " *"
				}
				labels := make([]string, 0, len(d.Labels))
				for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
					labels = append(labels, name+"="+d.Labels[name])
				}
				heard := time.Duration(d.Age * float64(time.Second)).Round(100 * time.Millisecond)
				partitions := strconv.Itoa(d.Partitions)
				if d.Starting > 0 {
					partitions += fmt.Sprintf(" (%d starting)", d.Starting)
				}
				return []string{
					id, role(d), d.Host, strconv.Itoa(d.PID), d.Version, d.Config, cmp.Or(strings.Join(labels, ","), "-"), partitions,
					cmp.Or(strings.Join(d.Connections, ","), "-"), c.when(d.Started), heard.String() + " ago",
				}
			},
			whole: true,
		})
	})
	return cmd
}

// role is what a daemon is to the others.
func role(d console.DaemonInfo) string {
	switch {
	case d.Dead:
		return "dead"
	case d.Leaving:
		return "leaving"
	case d.Owner:
		return "owner"
	}
	return "standby"
}
