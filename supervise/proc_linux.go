package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper of the command: %w", err)
	}
	return nil
}

// childAttr makes the command die with a supervisor that is killed by SIGKILL.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// closeOnExec keeps every descriptor but the standard ones from the command: ours, and what the daemon itself was started with.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(reportFD)
}

func dup(from, to int) error { return unix.Dup3(from, to, 0) }

// unread reports whether the pipe that fd writes to holds something.
func unread(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && n > 0
}

// aliveClock goes on while processes are stopped and while the whole system sleeps.
const aliveClock = unix.CLOCK_BOOTTIME

// proc is a line of the process table.
type proc struct {
	pid, ppid, pgrp, session int
	state                    byte
	threads                  int
	start                    uint64 // clock ticks after boot; with pid it names a process
}

// dead reports whether p has ended and only waits to be reaped. A process whose first thread has ended looks like that, but has others.
func (p proc) dead() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

func readProc(pid int) (proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, err
	}
	return parseStat(b)
}

// parseStat reads /proc/<pid>/stat (proc_pid_stat(5)). The program's name may hold spaces and brackets: the last bracket ends it.
func parseStat(b []byte) (proc, error) {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || shut < open {
		return proc{}, errors.New("parse stat: no program name")
	}
	f := strings.Fields(string(b[shut+1:]))
	const threadsField, startField = 20 - 3, 22 - 3 // f[0] is field 3
	if len(f) <= startField {
		return proc{}, errors.New("parse stat: too short")
	}
	p := proc{state: f[0][0]}
	var errs [6]error
	p.pid, errs[0] = strconv.Atoi(strings.TrimSpace(string(b[:open])))
	p.ppid, errs[1] = strconv.Atoi(f[1])
	p.pgrp, errs[2] = strconv.Atoi(f[2])
	p.session, errs[3] = strconv.Atoi(f[3])
	p.threads, errs[5] = strconv.Atoi(f[threadsField])
	p.start, errs[4] = strconv.ParseUint(f[startField], 10, 64)
	return p, errors.Join(errs[:]...)
}

// scan reads the whole process table. A process that ends meanwhile may be missing.
func scan() (map[int]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	table := make(map[int]proc, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProc(pid); err == nil {
			table[pid] = p
		}
	}
	return table, nil
}

// descendants returns everything below roots, without the roots.
func descendants(table map[int]proc, roots ...int) []proc {
	children := make(map[int][]proc)
	for _, p := range table {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var out []proc
	seen := make(map[int]bool)
	for _, r := range roots {
		seen[r] = true
	}
	for queue := roots; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if !seen[c.pid] {
				seen[c.pid] = true
				out = append(out, c)
				queue = append(queue, c.pid)
			}
		}
	}
	return out
}

// signal sends sig to exactly the process that the table showed: a pidfd cannot come to mean another process when the number is reused.
func (p proc) signal(sig syscall.Signal) {
	if p.dead() {
		return
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // old kernel, or a seccomp filter
		if now, err := readProc(p.pid); err == nil && now.start == p.start {
			_ = syscall.Kill(p.pid, sig)
		}
		return
	}
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if now, err := readProc(p.pid); err != nil || now.start != p.start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
}

// signalDescendants signals all that this process is responsible for, in whatever group or session it is.
func signalDescendants(sig syscall.Signal) {
	table, err := scan()
	if err != nil {
		_ = syscall.Kill(0, sig) // no /proc: the group is what can still be reached, and it includes us
		return
	}
	for _, p := range descendants(table, os.Getpid()) {
		p.signal(sig)
	}
}
