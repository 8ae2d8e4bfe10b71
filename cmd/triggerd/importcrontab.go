package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/crontab"
)

// imported is what `import crontab --json` prints.
type imported struct {
	Config   string         `json:"config"`
	Warnings []crontab.Note `json:"warnings"`
}

func (c *cli) importCommand() *cobra.Command {
	return c.group("import", "Turn what other schedulers have into configuration", c.importCrontab())
}

func (c *cli) importCrontab() *cobra.Command {
	var o crontab.Options
	cmd := &cobra.Command{
		Use:   "crontab FILE|-",
		Short: "Turn a crontab into a configuration to review",
		Long: "Turn a crontab into a configuration to review: one trigger for each job, on standard output. What a person has to look at is a comment\n" +
			"that starts with \"review:\", and a warning on standard error. When a line cannot be carried over, every such line is named and nothing is printed.",
		Example: "  crontab -l | triggerd import crontab - > triggerd.yaml\n  triggerd import crontab --system --timezone Europe/Berlin /etc/crontab",
		Args:    want("FILE"),
	}
	cmd.Flags().BoolVar(&o.System, "system", false, "a user stands before the command, as in /etc/crontab and /etc/cron.d")
	cmd.Flags().StringVar(&o.Timezone, "timezone", "", "IANA zone of jobs without CRON_TZ (default: the machine's, if its name is known, else UTC)")
	cmd.RunE = c.run(func(_ *cobra.Command, args []string) error {
		if o.Timezone == "" {
			o.Timezone, o.Zone = machineZone(os.LookupEnv, os.Readlink)
		} else if !zoneExists(o.Timezone) {
			return usagef("--timezone is %q: there is no such IANA zone", o.Timezone)
		} else {
			o.Zone = "--timezone"
		}
		return c.importFrom(args[0], o)
	})
	return cmd
}

func (c *cli) importFrom(file string, o crontab.Options) error {
	o.File = file
	from := c.In
	if file == "-" {
		o.File = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read the crontab: %w", err)
		}
		defer f.Close()
		from = f
	}
	result, err := crontab.Import(from, o)
	var found *crontab.Errors
	if errors.As(err, &found) {
		for _, p := range found.Problems {
			_, _ = fmt.Fprintln(c.Err, cleanLines(p.At(o.File)))
		}
		_, _ = fmt.Fprintf(c.Err, "triggerd: %s\n", plural(len(found.Problems), "problem"))
		return errReported
	}
	if err != nil {
		return err
	}
	return c.printImported(o.File, result)
}

func (c *cli) printImported(file string, r *crontab.Result) error {
	if c.json {
		return c.printJSON(imported{Config: string(r.YAML), Warnings: append([]crontab.Note{}, r.Warnings...)})
	}
	for _, w := range r.Warnings {
		w.Text = "warning: " + w.Text
		_, _ = fmt.Fprintln(c.Err, cleanLines(w.At(file)))
	}
	return c.write(func(w io.Writer) error {
		_, err := w.Write(r.YAML)
		return err
	})
}

// machineZone names the zone of this machine, by which its cron goes, and says where the name is from.
func machineZone(env func(string) (string, bool), readlink func(string) (string, error)) (zone, from string) {
	if tz, ok := env("TZ"); ok {
		if tz = strings.TrimPrefix(tz, ":"); zoneExists(tz) {
			return tz, "the variable TZ"
		}
	}
	if target, err := readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok && zoneExists(name) {
			return name, "the machine's"
		}
	}
	return "UTC", "the machine's zone has no name that could be told; --timezone sets one"
}

// zoneExists reports whether configurations may name the zone.
func zoneExists(name string) bool {
	_, err := cron.Zone(name)
	return err == nil
}
