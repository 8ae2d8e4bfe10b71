package turns

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// logEvery is how often the same message about the same trigger may be logged (promise P25): an endpoint that is down ends many turns.
const logEvery = time.Second

// logLimit holds back repeated messages. The zero value is ready; it is safe for concurrent use. Its size is bounded by the triggers there ever were.
type logLimit struct {
	mu   sync.Mutex
	seen map[string]*repeated
}

type repeated struct {
	last       time.Time
	suppressed uint64
}

// allow reports whether the cause may be logged now, and how many times it was held back since it last was.
func (l *logLimit) allow(cause string, now time.Time) (suppressed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.seen[cause]
	if r == nil {
		if l.seen == nil {
			l.seen = map[string]*repeated{}
		}
		l.seen[cause] = &repeated{last: now}
		return 0, true
	}
	if now.Sub(r.last) < logEvery {
		r.suppressed++
		return 0, false
	}
	suppressed = r.suppressed
	r.last, r.suppressed = now, 0
	return suppressed, true
}

// warn logs msg about a turn, with err where there is one, at most once a second for each trigger.
func (e *Engine) warn(t *turn, err error, msg string) {
	n, ok := e.logs.allow(msg+t.key.Trigger, time.Now())
	if !ok {
		return
	}
	ev := e.log.Warn().Str("trigger", t.key.Trigger).Str("turn", t.hash).Int("attempts", t.attempt)
	if n > 0 {
		ev = ev.Uint64("suppressed", n)
	}
	ev.AnErr(zerolog.ErrorFieldName, err).Msg(msg)
}
