package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/configs"
)

func (c *cli) natsCommand() *cobra.Command {
	return c.group("nats", "Help with a NATS server of your own", c.natsPermissions())
}

func (c *cli) natsPermissions() *cobra.Command {
	return &cobra.Command{
		Use:   "permissions",
		Short: "Print the permissions that the daemon's user needs on an external NATS",
		Long: "Print the permissions that the daemon's user needs on an external NATS, as the `permissions` of a user in the server's configuration:\n" +
			"its own streams, the streams of its push connections, and the subjects of its publish actions. No daemon is needed.",
		Example: "  triggerd nats permissions --config triggerd.yaml",
		Args:    want(),
		RunE: c.run(func(*cobra.Command, []string) error {
			o, err := c.needConfig()
			if err != nil {
				return err
			}
			o.AllowUnset = true // credentials may be elsewhere
			cfg, err := configs.Load(o)
			if err != nil {
				return err
			}
			p := permissions(cfg)
			return printOne(c, p, func(w io.Writer) error {
				responses := ""
				if p.AllowResponses {
					responses = "  allow_responses: true\n"
				}
				_, err := fmt.Fprintf(w, "permissions: {\n  publish: { allow: %s }\n  subscribe: { allow: %s }\n%s}\n", natsList(p.Publish), natsList(p.Subscribe), responses)
				return err
			})
		}),
	}
}

func permissions(cfg *configs.Config) bus.Permissions {
	var push, actions []string
	for name, conn := range cfg.Connections {
		if conn.Push != nil {
			push = append(push, cmp.Or(conn.RenamedFrom, name))
		}
	}
	for _, t := range cfg.Triggers {
		if t.Run.Publish != nil {
			actions = append(actions, subjectPattern(t.Run.Publish.Subject))
		}
	}
	return bus.Names{Prefix: cfg.NATS.Prefix}.Permissions(cfg.NATS.Domain, push, actions)
}

// subjectPattern matches whatever a template of a subject can become.
func subjectPattern(template string) string {
	fixed, _, dynamic := strings.Cut(template, "${{")
	if !dynamic {
		return template
	}
	return fixed[:strings.LastIndexByte(fixed, '.')+1] + ">"
}

// natsList is a list in the server's configuration format, one element a line.
func natsList(subjects []string) string {
	var b strings.Builder
	b.WriteString("[\n")
	for _, s := range subjects {
		fmt.Fprintf(&b, "    %q\n", s)
	}
	b.WriteString("  ]")
	return b.String()
}
