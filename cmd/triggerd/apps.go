package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

func (c *cli) appsCommand() *cobra.Command {
	return c.group("apps", "Give apps access to push connections and take it back", c.appsList(), c.appsAdd(), c.appsRemove())
}

func (c *cli) appsList() *cobra.Command {
	var jsonl bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List push connections with their apps' credentials",
		Example: "  triggerd apps list",
		Args:    want(),
	}
	cmd.Flags().BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
		if jsonl && c.json {
			return usagef("give --json or --jsonl, not both")
		}
		list, err := b.Apps(ctx)
		if err != nil {
			return err
		}
		return printList(c, jsonl, list, columns[console.AppInfo]{
			header: []string{"CONNECTION", "ENABLED", "USER", "PUBLISHES TO", "URL", "CREDENTIALS"},
			row: func(a console.AppInfo) []string {
				return []string{a.Connection, yes(a.Enabled), a.User, a.Subjects, a.URL, a.File}
			},
			whole: true,
		})
	})
	return cmd
}

func (c *cli) appsAdd() *cobra.Command {
	return &cobra.Command{
		Use:   "add CONNECTION",
		Short: "Make credentials for a push connection, or change its password",
		Long: "Make credentials for a push connection, or change its password: an app that has the old one is cut off.\n" +
			"The credentials are in a file that only the daemon's user can read.",
		Example: "  triggerd apps add orders",
		Args:    want("CONNECTION"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			a, err := b.AddApp(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printApp(a)
		}),
	}
}

func (c *cli) appsRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "remove CONNECTION",
		Short:   "Take a push connection's credentials back and cut its app off",
		Example: "  triggerd apps remove orders",
		Args:    want("CONNECTION"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			a, err := b.RemoveApp(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printApp(a)
		}),
	}
}

func (c *cli) printApp(a console.AppInfo) error {
	return printOne(c, a, func(w io.Writer) error {
		return fields(w,
			"connection", a.Connection,
			"enabled", yes(a.Enabled),
			"user", a.User,
			"publishes to", a.Subjects,
			"url", a.URL,
			"credentials", a.File,
		)
	})
}
