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

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdStore); dir != "" {
		hold(dir)
		return
	}
	goleak.VerifyTestMain(m)
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
