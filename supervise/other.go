//go:build unix && !linux

package supervise

import (
	"strings"
	"syscall"
)

func becomeSubreaper() error { return nil }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func closeOnExec() {
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
}

func dup(from, to int) error { return syscall.Dup2(from, to) }

// unread is not known here: then a pipe that a stopped supervisor does not read can fill up with beats, which [Handle.Terminate] copes with.
func unread(int) bool { return false }

// signalDescendants reaches the group, which includes the supervisor: it catches all but SIGKILL, and that is then its end too.
func signalDescendants(sig syscall.Signal) { _ = syscall.Kill(0, sig) }

// processGroup marks a Group of a system without /proc: its number is all that is known.
const processGroup = "group"

// Identify returns a constant: there is no portable start time.
func Identify(int) (string, error) { return processGroup, nil }

// Alive reports whether anything of the group is left.
func Alive(g Group) bool {
	return strings.HasPrefix(g.Started, processGroup) && g.ID > 1 && syscall.Kill(-g.ID, 0) == nil
}

func killOnce(g Group) bool {
	if !Alive(g) {
		return true
	}
	_ = syscall.Kill(-g.ID, syscall.SIGKILL)
	return false
}
