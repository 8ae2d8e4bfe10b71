package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/configs"
)

func (c *cli) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of configuration files, for editors",
		Example: "  triggerd schema > triggerd.schema.json",
		Args:    want(),
		RunE: c.run(func(*cobra.Command, []string) error {
			schema, err := configs.Schema()
			if err != nil {
				return fmt.Errorf("make the schema: %w", err)
			}
			return c.write(func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(schema, "\n"))
				return err
			})
		}),
	}
}
