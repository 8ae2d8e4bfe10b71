package turns

import (
	"testing"

	"go.uber.org/goleak"
)

// putLeak: the object store's Put (nats.go 1.55.0) leaves this goroutine behind, one in some thousand times, when it ends before the goroutine
// has looked at its channel.
var putLeak = goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, putLeak) }
