package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// Argument is the first argument that makes this program a supervisor: main calls [Main] with what follows it.
// Package early does that before main, and faster.
const Argument = "__supervise"

// orphanGrace is how long the command may take to end after the daemon died. It is short because a successor waits
// for the group to be gone before it runs the turn again.
const orphanGrace = 500 * time.Millisecond

// Time between two rounds of SIGKILL: a process that was forking during a round is met by the next one.
// It grows, because a process in the kernel's uninterruptible sleep may take minutes to notice.
const (
	minKillPause = 5 * time.Millisecond
	maxKillPause = 500 * time.Millisecond
)

// Main is the supervisor. It blocks until the command and everything it started are gone, and returns the exit code
// for the process: 0 when a report was written or the daemon went away, 2 when it was not started by a daemon.
// args are for people who look at the process list; they mean nothing.
func Main(args []string) int {
	// The command asks the kernel to die with the thread that forked it, so that thread must live as long as the process.
	runtime.LockOSThread()
	if !isPipe(controlFD) || !isPipe(reportFD) {
		fmt.Fprintln(os.Stderr, "this command is internal: the daemon starts it to watch over a command")
		return 2
	}
	closeOnExec()
	outlive()
	control, report := os.NewFile(controlFD, "control"), os.NewFile(reportFD, "report")

	subreaperErr := becomeSubreaper()
	spec, err := readSpec(control)
	if err != nil {
		releaseStdio() // what the Go runtime may say at the end is no output of the command
		return 0       // the daemon died or changed its mind before anything ran
	}
	if subreaperErr != nil {
		return finish(report, Report{Error: subreaperErr.Error(), Transient: true})
	}
	l := listener{fd: int(control.Fd()), limit: spec.Beat, heard: spec.Since, checked: spec.Since, clock: Now}
	if silence := l.silence(); spec.Beat > 0 && silence >= spec.Beat {
		return finish(report, Report{Error: fmt.Sprintf("not started: the daemon was silent for %v", silence.Round(time.Millisecond)), Transient: true})
	}
	pid, err := start(spec)
	releaseStdio()
	if err != nil {
		rep := Report{Error: err.Error(), Transient: true}
		var se *startError
		if errors.As(err, &se) {
			rep.Transient = se.transient
		}
		return finish(report, rep)
	}
	s := supervisor{main: pid, killAfter: spec.KillAfter}
	orders := make(chan order)
	go l.run(orders) // ends with the process
	rep := s.wait(orders)
	runtime.KeepAlive(control) // its finalizer would close the pipe under the listener
	return finish(report, rep)
}

// finish writes the report; nobody may be left to read it, which is no failure of ours.
func finish(w io.Writer, rep Report) int {
	if err := writeReport(w, rep); err != nil && !errors.Is(err, syscall.EPIPE) {
		return 1
	}
	return 0
}

// outlive makes the supervisor survive signals that are sent to its whole group or session: it has to outlive the
// command. Caught signals, unlike ignored ones, are back to their defaults in the command.
func outlive() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE)
}

// releaseStdio lets go of the command's streams: the daemon must see their end when the command has closed them.
func releaseStdio() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		for fd := range 3 {
			_ = syscall.Close(fd)
		}
		return
	}
	for fd := range 3 {
		_ = dup(int(null.Fd()), fd)
	}
	_ = null.Close()
}

func isPipe(fd int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFIFO
}

// supervisor is the state of the one loop.
type supervisor struct {
	main      int
	killAfter time.Duration
	stopping  bool          // SIGTERM was sent
	deadline  time.Time     // with stopping: when SIGKILL follows
	asked     bool          // the daemon asked for the end
	silent    time.Duration // the daemon did not show life for this long
}

// wait returns when no descendant is left.
func (s *supervisor) wait(orders <-chan order) Report {
	exits := reap(s.main)
	kill := time.NewTimer(time.Hour)
	defer kill.Stop()
	var rep Report
	for pause := minKillPause; ; {
		select {
		case e := <-exits:
			if e.main {
				rep = reportOf(e.status)
				rep.Terminated = s.asked
			}
			if e.last {
				rep.Silent = s.silent
				return rep
			}
			s.stop(s.killAfter, kill)
		case o := <-orders:
			s.obey(o, kill)
		case <-kill.C:
			signalDescendants(syscall.SIGKILL)
			kill.Reset(pause)
			pause = min(2*pause, maxKillPause)
		}
	}
}

// obey carries out an order.
func (s *supervisor) obey(o order, kill *time.Timer) {
	switch o.kind {
	case orderTerminate:
		s.asked = true
		s.stop(s.killAfter, kill)
	case orderOrphaned:
		s.asked = true
		s.stop(min(s.killAfter, orphanGrace), kill)
	case orderSilent:
		s.silent = o.silence
		signalDescendants(syscall.SIGKILL) // now: a successor may be about to run the turn again
		s.stopping, s.deadline = true, time.Now()
		kill.Reset(minKillPause)
	}
}

// stop begins the end, or brings it forward.
func (s *supervisor) stop(grace time.Duration, kill *time.Timer) {
	deadline := time.Now().Add(grace)
	if s.stopping && !deadline.Before(s.deadline) {
		return
	}
	if !s.stopping {
		signalDescendants(syscall.SIGTERM)
		signalDescendants(syscall.SIGCONT) // a stopped process would not see the SIGTERM
	}
	s.stopping, s.deadline = true, deadline
	kill.Reset(time.Until(deadline))
}

// exit is news about children.
type exit struct {
	main   bool // the command itself ended, with status
	status syscall.WaitStatus
	last   bool // no descendant is left
}

// reap collects every child, adopted ones too, and tells when the command has ended and when nobody is left.
func reap(main int) <-chan exit {
	out := make(chan exit, 2)
	go func() {
		var news exit
		for options := 0; ; {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, options, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil: // ECHILD: descendants always hang from a child, so there are none
				news.last = true
				out <- news
				return
			case pid == main:
				// Look, without waiting, whether others are left, so that the usual end needs no scan of the process table.
				news, options = exit{main: true, status: ws}, syscall.WNOHANG
			case pid == 0:
				out <- news
				news, options = exit{}, 0
			}
		}
	}()
	return out
}

func reportOf(ws syscall.WaitStatus) Report {
	if ws.Signaled() {
		return Report{Exit: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return Report{Exit: ws.ExitStatus()}
}
