package supervise

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// What may follow a Spec on the control pipe, any number of times and in any order.
const (
	terminate = 'T' // end the command
	beat      = 'B' // the daemon is alive; means nothing unless the Spec has a Beat
)

// checksPerBeat is how often in Spec.Beat the supervisor looks at its pipe when nothing comes. It is also how exactly the
// time of a beat is known, so it takes its part from what a daemon may be late with.
const checksPerBeat = 8

// order is what the control pipe says, or does not say.
type order struct {
	kind    orderKind
	silence time.Duration // with orderSilent: for how long
}

type orderKind int

const (
	orderTerminate orderKind = iota
	orderOrphaned            // the daemon is gone
	orderSilent              // the daemon may be frozen or cut off, and somebody else may be its successor by now
)

// listener reads the control pipe in the supervisor.
//
// A beat may have waited in the pipe while this process was frozen together with the daemon, so the time of reading says
// nothing. The rule: a beat counts as of the check before the one that reads it. Each check empties the pipe, so what a check
// finds was written after the one before, and the daemon was alive then at the earliest. After a gap longer than limit between
// two checks no beat can save the command, and a shorter gap is counted whole. The cost is that a daemon has 1/8 of limit less.
type listener struct {
	fd      int                  // read end; nobody else reads it
	limit   time.Duration        // silence that ends the command; 0 = none does
	heard   time.Duration        // on clock: when the daemon was alive at the latest that is proven
	checked time.Duration        // on clock: the check before
	clock   func() time.Duration // Now, except in tests
}

// run tells what comes, and blocks while nobody takes it. It returns after telling that the daemon is gone or silent.
func (l *listener) run(out chan<- order) {
	buf := make([]byte, 1<<16) // as much as a pipe holds, so that one read empties it
	for {
		got, open := l.check(buf)
		switch silence := l.silence(); {
		case l.limit > 0 && silence >= l.limit: // first of all, for what else came may be as old
			out <- order{kind: orderSilent, silence: silence}
			return
		case !open:
			out <- order{kind: orderOrphaned}
			return
		case bytes.IndexByte(got, terminate) >= 0:
			out <- order{kind: orderTerminate}
		}
	}
}

// silence is how long ago the daemon is known to have been alive.
func (l *listener) silence() time.Duration { return l.clock() - l.heard }

// check waits for news or for the time to look again, and empties the pipe. It is false when the pipe was closed.
func (l *listener) check(buf []byte) ([]byte, bool) {
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, l.patience())
	now := l.clock() // before the read: what comes between the two is then read no earlier than it counts
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, false // deaf: as good as gone
	}
	var got []byte
	if err == nil && n > 0 {
		n, err = unix.Read(l.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			return nil, true // the pipe was not emptied, so this was no check
		case err != nil || n == 0:
			return nil, false
		}
		got = buf[:n]
	}
	if bytes.IndexByte(got, beat) >= 0 {
		l.heard = l.checked
	}
	if err == nil {
		l.checked = now
	}
	return got, true
}

// patience is for poll, in milliseconds: until the next check, which is due no later than the silence is too long.
// Poll's own clock stands still while the whole system sleeps, so after that a check may be late by 1/8 of limit.
func (l *listener) patience() int {
	if l.limit <= 0 {
		return -1
	}
	d := min(l.limit/checksPerBeat, l.limit-l.silence())
	return int((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}
