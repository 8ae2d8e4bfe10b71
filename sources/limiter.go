package sources

import (
	"sync"
	"time"
)

// LogEvery is how often the same cause may be logged (promise P25).
const LogEvery = time.Second

// maxCauses bounds the limiter's memory; causes are few, so more of them means that somebody put data into a cause.
const maxCauses = 256

// Limiter keeps a repeated failure from filling the log. The zero value is ready; it is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	seen map[string]*cause
}

type cause struct {
	last       time.Time
	suppressed uint64
}

// Allow reports whether the cause may be logged now, at most once per [LogEvery], and how many times it was
// held back since it last was. It never blocks for long.
func (l *Limiter) Allow(name string) (suppressed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.seen[name]
	if c == nil {
		if l.seen == nil || len(l.seen) >= maxCauses {
			l.seen = make(map[string]*cause)
		}
		l.seen[name] = &cause{last: now}
		return 0, true
	}
	if d := now.Sub(c.last); d >= 0 && d < LogEvery {
		c.suppressed++
		return 0, false
	}
	suppressed, c.suppressed, c.last = c.suppressed, 0, now
	return suppressed, true
}
