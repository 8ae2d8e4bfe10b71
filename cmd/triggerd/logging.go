package main

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

// logFlags choose how the daemon logs. It logs to standard error.
type logFlags struct {
	format, level string
}

func (l *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.format, "log-format", "", "json or console (default: console on a terminal, else json)")
	cmd.Flags().StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
}

// logger also returns what it writes to, so that the daemon can take secrets out on the way.
func (l *logFlags) logger(w io.Writer) (zerolog.Logger, io.Writer, error) {
	levels := map[string]zerolog.Level{"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel}
	level, ok := levels[l.level]
	if !ok {
		return zerolog.Nop(), nil, usagef("--log-level is %q: use debug, info, warn or error", l.level)
	}
	terminal := isTerminal(w)
	format := l.format
	if format == "" {
		format = "json"
		if terminal {
			format = "console"
		}
	}
	switch format {
	case "json":
	case "console":
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.DateTime, NoColor: !terminal || os.Getenv("NO_COLOR") != ""}
	default:
		return zerolog.Nop(), nil, usagef("--log-format is %q: use json or console", l.format)
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), w, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
