package turns

import (
	"testing"
	"time"
)

func TestRepeatedMessagesAreHeldBack(t *testing.T) {
	var l logLimit
	start := time.Now()
	for _, c := range []struct {
		cause      string
		after      time.Duration
		suppressed uint64
		ok         bool
	}{
		{"a", 0, 0, true},
		{"a", time.Millisecond, 0, false},
		{"b", 2 * time.Millisecond, 0, true}, // another cause is not held back
		{"a", 999 * time.Millisecond, 0, false},
		{"a", time.Second, 2, true},
		{"a", time.Second, 0, false},
		{"a", 2 * time.Second, 1, true},
		{"a", 9 * time.Second, 0, true},
	} {
		if n, ok := l.allow(c.cause, start.Add(c.after)); ok != c.ok || n != c.suppressed {
			t.Errorf("%s after %s: %v, %d suppressed; want %v, %d", c.cause, c.after, ok, n, c.ok, c.suppressed)
		}
	}
}
