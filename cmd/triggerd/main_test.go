package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is what a command line left behind.
type result struct {
	code     int
	out, err string
}

// runCLI runs one command line against b in this process.
func runCLI(t *testing.T, b console.Backend, args ...string) result {
	t.Helper()
	return runWith(t, "", func() (console.Backend, error) { return b, nil }, args...)
}

func runWith(t *testing.T, stdin string, connect func() (console.Backend, error), args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(t.Context(), args, Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, connect)
	return result{code, out.String(), errs.String()}
}

// lines joins what a golden text shows line by line.
func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

func expect(t *testing.T, r result, code int, out string) {
	t.Helper()
	if r.code != code || r.out != out {
		t.Fatalf("exit %d, stderr %q, stdout:\n%s\nwant exit %d, stdout:\n%s", r.code, r.err, r.out, code, out)
	}
}

func TestSignals(t *testing.T) {
	signals := make(chan os.Signal, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	exits := make(chan int, 1)
	go handleSignals(signals, cancel, func(code int) { exits <- code })

	signals <- syscall.SIGTERM
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		t.Fatalf("cause %v", context.Cause(ctx))
	}
	select {
	case code := <-exits:
		t.Fatalf("the first signal exits with %d", code)
	default:
	}
	signals <- os.Interrupt
	if code := <-exits; code != exitInterrupted {
		t.Fatalf("the second signal exits with %d", code)
	}
}
