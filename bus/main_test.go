package bus

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// holdStore makes the test binary a process that opens the store named there and keeps it until its standard input ends.
const holdStore = "BUS_TEST_HOLD_STORE"

// putLeak: the object store's Put (nats.go 1.55.0) leaves this goroutine behind, one in some thousand times, when it ends before the goroutine
// has looked at its channel.
var putLeak = goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdStore); dir != "" {
		hold(dir)
		return
	}
	goleak.VerifyTestMain(m, putLeak)
}

func hold(dir string) {
	b, err := Open(context.Background(), Options{
		Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: dir, Sync: SyncInterval, Listen: "off", Reserve: 1},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer b.Close()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
