package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLost is a supervisor that ended without a report: something outside killed it. What the command did is unknown.
var ErrLost = errors.New("the supervisor was killed")

// drainTimeout is how long the output may stay open after everything in the group has ended: a process outside of it
// can hold the pipe only if it was handed over on purpose.
const drainTimeout = 2 * time.Second

// Streams are the command's standard streams. Stdin is copied until the command stops reading it, which is no error.
// Writes to Stdout and Stderr come from two goroutines, which have ended when [Handle.Wait] returns.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Handle is the daemon's side of one supervisor. [Handle.Wait] or [Handle.Abort] must be called, once.
type Handle struct {
	cmd     *exec.Cmd
	control *os.File
	report  *os.File
	group   Group
}

// Launch starts a supervisor, which then waits: the command runs only after [Handle.Run]. argv starts [Main] in a process of its own.
func Launch(argv []string, s Streams) (*Handle, error) {
	if len(argv) == 0 {
		return nil, errors.New("launch supervisor: no program given")
	}
	controlRead, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	report, reportWrite, err := os.Pipe()
	if err != nil {
		_ = controlRead.Close()
		_ = control.Close()
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	cmd.ExtraFiles = []*os.File{controlRead, reportWrite} // controlFD, reportFD
	cmd.Env = []string{"GOMAXPROCS=1"}                    // the command's environment comes with the Spec
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = drainTimeout

	h := &Handle{cmd: cmd, control: control, report: report}
	err = cmd.Start()
	_ = controlRead.Close()
	_ = reportWrite.Close()
	if err != nil {
		h.closePipes()
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	// Until Wait the pid cannot be reused, so this start time is the supervisor's.
	started, err := Identify(cmd.Process.Pid)
	if err != nil {
		h.Abort()
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	h.group = Group{ID: cmd.Process.Pid, Started: started}
	return h, nil
}

// Group names the process group, also for a later daemon.
func (h *Handle) Group() Group { return h.group }

// Run lets the supervisor start the command. It does not wait for that. After an error nothing runs; call [Handle.Abort].
func (h *Handle) Run(ctx context.Context, s Spec) error {
	if s.Since == 0 {
		s.Since = Now()
	}
	// A large spec fills the pipe, and a stopped supervisor would not empty it.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = h.control.SetWriteDeadline(time.Unix(1, 0))
	})
	err := writeSpec(h.control, s)
	if !stop() {
		<-interrupted
		_ = h.control.SetWriteDeadline(time.Time{}) // else it would cut off what is sent later
	}
	return err
}

// Terminate asks for the end of the command: SIGTERM to all its processes, SIGKILL after Spec.KillAfter. It does not wait.
// A supervisor that has ended already is no error. Call it after Run; it is safe to repeat and to call at the same time as Beat and Wait.
func (h *Handle) Terminate() {
	if h.send(terminate, false) {
		return
	}
	// A supervisor that has not even read its Spec does not run. When it does again, a closed pipe tells it as well, with less grace.
	_ = h.control.Close()
}

// Beat tells the supervisor that the daemon is alive (Spec.Beat). It never blocks, and a supervisor that does not read or has
// ended is no error. Call it after Run; it is safe to repeat and to call at the same time as Terminate and Wait.
func (h *Handle) Beat() { h.send(beat, true) }

// send writes one byte if there is room, and is false if there was none. With unlessUnread it leaves that for when the pipe is empty:
// a beat that still waits there is going to be read together with this one, so it says the same. That keeps room for a terminate.
func (h *Handle) send(b byte, unlessUnread bool) bool {
	conn, err := h.control.SyscallConn()
	if err != nil {
		return true // closed: it is over
	}
	room := true
	_ = conn.Write(func(fd uintptr) bool {
		if unlessUnread && unread(int(fd)) {
			return true
		}
		_, err := unix.Write(int(fd), []byte{b})
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Write(int(fd), []byte{b})
		}
		room = !errors.Is(err, unix.EAGAIN)
		return true // once is enough: conn would wait for room otherwise
	})
	return room
}

// Wait blocks until nothing of the group is left and all output was written, and tells how it ended.
// It returns [ErrLost], after cleaning up, when the supervisor itself was killed.
func (h *Handle) Wait() (Report, error) {
	defer h.closePipes()
	rep, err := readReport(h.report)
	if err != nil {
		// The pipe closed without a report: the supervisor is dead or about to be. Its group must not stay behind,
		// and while members live, the streams would not end.
		_ = Kill(context.Background(), h.group)
		_ = h.cmd.Wait()
		reapOrphans(h.group.ID)
		return Report{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	_ = h.cmd.Wait() // the report says more than the supervisor's own exit code or a stream that was cut off
	return rep, nil
}

// Abort kills a supervisor that was not told to run anything, and waits for its end.
func (h *Handle) Abort() {
	h.closePipes()
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

func (h *Handle) closePipes() {
	_ = h.control.Close()
	_ = h.report.Close()
}
