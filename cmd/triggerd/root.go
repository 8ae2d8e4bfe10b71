package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// errReported is a failure whose description is out already.
var errReported = errors.New("failed")

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Streams are a process's three.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// cli is what the commands of one run share.
type cli struct {
	Streams
	configs, overlays []string
	socket            string
	json, utc         bool
	connect           func() (console.Backend, error)
	now               func() time.Time
	started           bool // a command's own code ran: what failed before that is usage
}

// newRoot builds the whole command tree over io. Commands find the daemon by themselves.
func newRoot(io Streams) *cobra.Command { return newCLI(io, nil).root() }

// newCLI takes connect instead of the daemon's socket, unless it is nil.
func newCLI(io Streams, connect func() (console.Backend, error)) *cli {
	c := &cli{Streams: io, connect: connect, now: time.Now}
	if c.connect == nil {
		c.connect = c.dial
	}
	return c
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "triggerd",
		Short: "Run agents and scripts on events, each exactly once per trigger",
		Long: "triggerd turns events (webhooks, schedules, files, messages) into turns of your scripts, calls and agents:\n" +
			"one event becomes exactly one turn per trigger, in order within its thread, across crashes.",
		Example:       "  triggerd serve --config triggerd.yaml\n  triggerd turns list --state dead",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.Err)
	p := root.PersistentFlags()
	p.StringArrayVar(&c.configs, "config", nil, "configuration file or folder; repeat for several (default ./triggerd.yaml if it exists)")
	p.StringArrayVar(&c.overlays, "overlay", nil, "file laid over the configuration; repeat for several")
	p.StringVar(&c.socket, "socket", "", "path of the daemon's admin socket (default: what the configuration says)")
	p.BoolVar(&c.json, "json", false, "print one JSON document")
	p.BoolVar(&c.utc, "utc", false, "show times in UTC instead of the local zone")
	root.AddCommand(
		c.serveCommand(), c.validateCommand(), c.fireCommand(), c.eventsCommand(), c.turnsCommand(), c.explainCommand(),
		c.triggersCommand(), c.scheduleCommand(), c.daemonsCommand(), c.appsCommand(), c.natsCommand(), c.reloadCommand(), c.importCommand(), c.schemaCommand(), c.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Args = cobra.ArbitraryArgs
		c.onlyHolds(completion)
	}
	return root
}

// execute runs one command line and returns the exit code. connect is nil except in tests.
func execute(ctx context.Context, args []string, io Streams, connect func() (console.Backend, error)) int {
	c := newCLI(io, connect)
	root := c.root()
	root.SetArgs(append([]string{}, args...)) // nil would make cobra read os.Args
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case !c.started || errors.As(err, &usage):
		_, _ = fmt.Fprintf(c.Err, "triggerd: %v\nsee `%s --help`\n", err, cmd.CommandPath())
		return exitUsage
	case errors.Is(context.Cause(ctx), errInterrupted) && errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(c.Err, "triggerd: interrupted")
		return exitInterrupted
	}
	_, _ = fmt.Fprintf(c.Err, "triggerd: %s\n", cleanLines(err.Error()))
	return exitFailure
}

// run wraps a command's code.
func (c *cli) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.started = true
		return f(cmd, args)
	}
}

// ask wraps code that needs the daemon.
func (c *cli) ask(f func(ctx context.Context, b console.Backend, args []string) error) func(*cobra.Command, []string) error {
	return c.run(func(cmd *cobra.Command, args []string) error {
		b, err := c.connect()
		if err != nil {
			return err
		}
		if closer, ok := b.(io.Closer); ok {
			defer func() { _ = closer.Close() }()
		}
		return f(cmd.Context(), b, args)
	})
}

// group is a command that only holds others.
func (c *cli) group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(subs...)
	c.onlyHolds(cmd)
	return cmd
}

// onlyHolds makes it a mistake to run cmd without one of its commands, where cobra prints help and reports success.
func (c *cli) onlyHolds(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = c.run(func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, s := range cmd.Commands() {
			names = append(names, s.Name())
		}
		if len(args) == 0 {
			return usagef("%s needs one of: %s", cmd.Name(), strings.Join(names, ", "))
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usagef("%s has no command %q, did you mean %q?", cmd.Name(), args[0], near[0])
		}
		return usagef("%s has no command %q, only: %s", cmd.Name(), args[0], strings.Join(names, ", "))
	})
}

// want checks that there is one argument for each name.
func want(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s needs %s", cmd.Name(), strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usagef("%s does not take %q", cmd.Name(), args[len(names)])
		}
		for i, a := range args {
			if a == "" {
				return usagef("%s is empty", names[i])
			}
		}
		return nil
	}
}
