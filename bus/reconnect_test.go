package bus

import (
	"testing"
	"time"
)

// A server that is back is found soon while the daemon may keep its work, and not asked all the time when it stays away.
func TestReconnectDelay(t *testing.T) {
	away := time.Duration(0)
	for n := range 1000 {
		d := reconnectDelay(n)
		if away < 3*time.Second && d > 400*time.Millisecond || d > 2*time.Second || n > 20 && d < time.Second {
			t.Errorf("pause %d, after %s, is %s", n, away, d)
		}
		away += d
	}
	if away < 10*time.Minute {
		t.Errorf("a thousand tries in %s", away)
	}
}
