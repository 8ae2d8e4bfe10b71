// Command triggerd runs the daemon and talks to it: `triggerd serve` is the daemon, the other commands are its clients.
//
// Exit codes: 0 ok, 1 failure, 2 usage, 130 interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/supervise"
	_ "github.com/triggerd/triggerd/supervise/early" // a supervisor leaves from there, before the rest of the program is initialised
)

func main() {
	// The daemon starts its own binary again to watch over a command. Package early usually sees it first; it must never get any further.
	if len(os.Args) > 1 && os.Args[1] == supervise.Argument {
		os.Exit(supervise.Main(os.Args[2:]))
	}
	zerolog.TimeFieldFormat = time.RFC3339Nano // zerolog's only knob for it; seconds are too coarse to follow a turn
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go handleSignals(signals, cancel, os.Exit)
	os.Exit(execute(ctx, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, nil))
}

// handleSignals lets the first signal end the context and the second one the process, for whoever does not want to wait for the drain.
func handleSignals(signals <-chan os.Signal, cancel context.CancelCauseFunc, exit func(int)) {
	<-signals
	cancel(errInterrupted)
	<-signals
	exit(exitInterrupted)
}
