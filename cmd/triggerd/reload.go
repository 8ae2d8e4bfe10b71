package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

func (c *cli) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "reload",
		Short:   "Let the daemon read its configuration again and say what changed",
		Long:    "Let the daemon read its configuration again and say what changed. A configuration with problems is refused and changes nothing.",
		Example: "  triggerd reload",
		Args:    want(),
		RunE: c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
			res, err := b.Reload(ctx)
			if err != nil {
				return err
			}
			return printOne(c, res, func(w io.Writer) error {
				if !res.Changed {
					_, err := fmt.Fprintf(w, "nothing changed, configuration %s\n", res.Version)
					return err
				}
				if _, err := fmt.Fprintf(w, "reloaded, configuration %s\n", res.Version); err != nil {
					return err
				}
				return fields(w, "connections", strings.Join(res.Connections, " "), "triggers", strings.Join(res.Triggers, " "))
			})
		}),
	}
}
