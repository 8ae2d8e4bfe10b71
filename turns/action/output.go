package action

import (
	"bytes"
	"io"
	"sync"

	"github.com/triggerd/triggerd"
)

// margin is how much more than the limit is read, so that a secret that begins before the cut is seen whole, and replaced.
const margin = 4096

// DefaultMaxOutput is what is kept of a command's output or of a response when the options do not say.
const DefaultMaxOutput = 1 << 20

// keep fills in the output of a result. head holds up to limit+margin bytes of the total that there were.
func (b *base) keep(res *triggerd.Result, head []byte, total, limit int64) {
	out := head
	if b.redact != nil {
		out = b.redact(bytes.Clone(head))
		if total > int64(len(head)) {
			// The end of head may be the beginning of a secret. It is shorter than the margin, so that goes.
			out = out[:max(0, len(out)-margin)]
		}
	}
	if int64(len(out)) > limit {
		out = out[:limit]
	}
	res.Output, res.Bytes, res.Cut = out, total, total > limit
}

// capture keeps the head of a command's output and the last line of its errors. It never refuses a write, so a command never blocks on us.
type capture struct {
	mu    sync.Mutex
	limit int64 // margin included
	head  []byte
	total int64
	errs  lastLine
}

func newCapture(limit int64) *capture { return &capture{limit: limit + margin} }

// Write takes standard output.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	if room := c.limit - int64(len(c.head)); room > 0 {
		c.head = append(c.head, p[:min(int64(len(p)), room)]...)
	}
	return len(p), nil
}

// stderr takes standard error: the same as standard output, and its last line is remembered.
func (c *capture) stderr() io.Writer { return errWriter{c} }

type errWriter struct{ c *capture }

func (w errWriter) Write(p []byte) (int, error) {
	n, err := w.c.Write(p)
	w.c.errs.add(p)
	return n, err
}

// lastLine keeps the beginning of the last line that is not blank. It is for one goroutine.
type lastLine struct {
	done, open []byte
}

func (l *lastLine) add(p []byte) {
	for {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := margin - len(l.open); room > 0 {
			l.open = append(l.open, line[:min(len(line), room)]...)
		}
		if !ended {
			return
		}
		if len(bytes.TrimSpace(l.open)) > 0 {
			l.done, l.open = l.open, l.done
		}
		l.open, p = l.open[:0], rest
	}
}

func (l *lastLine) bytes() []byte {
	if len(bytes.TrimSpace(l.open)) > 0 {
		return l.open
	}
	return l.done
}
