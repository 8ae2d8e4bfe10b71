package action

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/supervise"
	"github.com/triggerd/triggerd/turns"
)

// The test binary plays three parts: the tests, a supervisor, and a daemon that is going to be killed.
const (
	asSupervisor = supervise.Argument
	asDaemon     = "__daemon"
)

// victimBeat in the environment is the Beat of a victim's action.
const victimBeat = "TRIGGERD_TEST_BEAT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asSupervisor:
			os.Exit(supervise.Main(os.Args[2:]))
		case asDaemon:
			os.Exit(victim(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// victim is a daemon that runs one exec action, prints the process that it records, and waits to be killed. If it is not, it prints the outcome.
func victim(command []string) int {
	beat, _ := time.ParseDuration(os.Getenv(victimBeat))
	act, err := NewExec(ExecOptions{Command: command, Supervisor: supervisor(), Beat: beat})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a := attempt()
	a.Started = func(_ context.Context, p turns.Process) error {
		fmt.Println(p.Group, p.Started)
		return nil
	}
	o := act.Run(context.Background(), a)
	fmt.Println(o.Verb, o.Cause)
	return 0
}

// supervisor starts this binary as a supervisor. Under the race detector a process would otherwise sleep for a second when it exits.
func supervisor() []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{"env", "GORACE=atexit_sleep_ms=0", self, asSupervisor}
}

var eventTime = time.Date(2026, 11, 30, 12, 0, 0, 5e6, time.UTC)

// attempt is the first attempt of a turn for a JSON event.
func attempt() *turns.Attempt {
	return &turns.Attempt{
		Key:     triggerd.TurnKey{Connection: "orders", Trigger: "ship", EventID: "o-1"},
		Trigger: "ship-it", Connection: "shop",
		Event: triggerd.Event{
			Connection: "orders", Subscription: "0", ID: "o-1", Type: "order.created", Time: eventTime, Received: eventTime.Add(time.Second),
			ContentType: "application/json", Payload: []byte(`{"id": 9007199254740993, "name": "<Ann>"}`), Headers: map[string]string{"x-a": "b"}, Hops: 2,
		},
		Thread: "t-9", Number: 3, Opened: eventTime.Add(2 * time.Second),
		Started: func(context.Context, turns.Process) error { return nil },
	}
}

func ptr[T any](v T) *T { return &v }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantOutcome compares verb and a part of the cause; "" wants an empty cause.
func wantOutcome(t *testing.T, o triggerd.Outcome, verb triggerd.Verb, cause string) {
	t.Helper()
	if o.Verb != verb || !strings.Contains(o.Cause, cause) || cause == "" && o.Cause != "" {
		t.Errorf("got %s %q, want %s %q (output %q)", o.Verb, o.Cause, verb, cause, o.Result.Output)
	}
}

// ending is a context that ends with cause when stop is called.
func ending(t *testing.T) (ctx context.Context, stop context.CancelCauseFunc) {
	ctx, stop = context.WithCancelCause(t.Context())
	t.Cleanup(func() { stop(nil) })
	return ctx, stop
}

func secretsOf(m map[string]string) Secrets {
	return func(name string) (string, error) {
		if v, ok := m[name]; ok {
			return v, nil
		}
		return "", errors.New("no such secret")
	}
}
