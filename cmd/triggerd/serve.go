package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/daemon"
)

func (c *cli) serveCommand() *cobra.Command {
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon until SIGINT or SIGTERM",
		Long: "Run the daemon until SIGINT or SIGTERM: it stops taking events in, lets running turns end for server.drain_timeout, and leaves the rest\n" +
			"for the next start. A second signal ends it at once, which loses nothing either. SIGHUP reads the configuration again.",
		Example: "  triggerd serve --config triggerd.yaml --log-format json",
		Args:    want(),
	}
	logs.add(cmd)
	cmd.RunE = c.run(func(cmd *cobra.Command, _ []string) error {
		switch {
		case c.socket != "":
			return usagef("--socket is for the commands that ask a daemon: set server.admin.listen in the configuration")
		case c.json:
			return usagef("--json is for the other commands: use --log-format json")
		}
		log, to, err := logs.logger(c.Err)
		if err != nil {
			return err
		}
		o, err := c.needConfig()
		if err != nil {
			return err
		}
		info, _ := debug.ReadBuildInfo()
		// Before the daemon exists, so that a SIGHUP during its start waits instead of killing the process.
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)

		d, err := daemon.New(daemon.Options{Config: o, Log: log, LogTo: to, Version: readVersions(info).Version})
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		ctx, stop := context.WithCancel(cmd.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			reloadOn(ctx, hangups, d, log)
		}()
		err = d.Run(ctx)
		stop()
		<-done
		if cause := context.Cause(cmd.Context()); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
			return nil // a signal asked for the end, during the start perhaps: that is success
		}
		return err
	})
	return cmd
}

// reloader is the part of a daemon that a SIGHUP needs.
type reloader interface {
	Reload(ctx context.Context) (console.ReloadResult, error)
}

// reloadOn reloads at each signal until ctx ends. A refused configuration is logged and changes nothing.
func reloadOn(ctx context.Context, hangups <-chan os.Signal, d reloader, log zerolog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		res, err := d.Reload(ctx)
		if err != nil {
			log.Error().Err(err).Msg("reload refused, the configuration before it stays in force")
			continue
		}
		log.Info().Bool("changed", res.Changed).Strs("connections", res.Connections).Strs("triggers", res.Triggers).
			Str("config_version", res.Version).Msg("reloaded")
	}
}
