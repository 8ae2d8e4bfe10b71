package supervise

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identify returns what makes pid unmistakable: the boot, the pid namespace and the kernel's start time of the process.
func Identify(pid int) (string, error) {
	space, err := namespace()
	if err != nil {
		return "", err
	}
	p, err := readProc(pid)
	if err != nil {
		return "", fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	return space + "/" + strconv.FormatUint(p.start, 10), nil
}

// namespace names where pids of this process mean something.
func namespace() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("read the pid namespace: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + ns, nil
}

// startTicks returns g's start time if its pid means something here and now.
func (g Group) startTicks() (uint64, bool) {
	here, err := namespace()
	if err != nil {
		return 0, false
	}
	ticks, ok := strings.CutPrefix(g.Started, here+"/")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(ticks, 10, 64)
	return n, err == nil && g.ID > 1
}

// Alive reports whether anything of the group is left.
func Alive(g Group) bool {
	start, ok := g.startTicks()
	if !ok {
		return false
	}
	// The supervisor outlives all others, so the usual answer needs one small file.
	if p, err := readProc(g.ID); err == nil && p.start == start && !p.dead() {
		return true
	}
	return len(members(g, start)) > 0
}

// members lists what is alive of the group, the supervisor last.
func members(g Group, start uint64) []proc {
	table, err := scan()
	if err != nil {
		return nil
	}
	leader, there := table[g.ID]
	if there && leader.start != start {
		return nil // the number is free for others only when nothing of the old group and session is left
	}
	roots, found := []int{}, []proc{}
	if there {
		// Parents come before their children: one that saw its child die first could go on to its next step.
		found = descendants(table, g.ID)
	}
	for _, p := range byStart(table) {
		if p.pid == g.ID || p.dead() || p.pgrp != g.ID && p.session != g.ID {
			continue
		}
		// Without its leader a group is ours only if it shows: the number may have been used again by a daemon that forked and exited.
		if there || p.start >= start && startedByTurn(p.pid) {
			roots, found = append(roots, p.pid), append(found, p)
		}
	}
	found = append(found, descendants(table, roots...)...)
	if there {
		found = append(found, leader)
	}
	alive, seen := []proc{}, map[int]bool{}
	for _, p := range found {
		if !p.dead() && !seen[p.pid] {
			seen[p.pid] = true
			alive = append(alive, p)
		}
	}
	return alive
}

// byStart lists the table with the oldest first, so that parents come before their children.
func byStart(table map[int]proc) []proc {
	return slices.SortedFunc(maps.Values(table), func(a, b proc) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
}

// startedByTurn looks for the variable that every command of a turn has in its environment.
func startedByTurn(pid int) bool {
	// While a process replaces its program, which takes long on a busy machine, its environment reads as empty.
	for range 100 {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			return false
		}
		if len(env) > 0 {
			return bytes.Contains(append([]byte{0}, env...), []byte("\x00TRIGGERD_TURN="))
		}
		if p, err := readProc(pid); err != nil || p.dead() {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

// killOnce makes one round and reports whether nothing was left to kill. The supervisor goes last: while it lives, nobody escapes.
func killOnce(g Group) bool {
	start, ok := g.startTicks()
	if !ok {
		return true
	}
	left := members(g, start)
	for _, p := range left {
		if p.pid != g.ID || len(left) == 1 {
			p.signal(syscall.SIGKILL)
		}
	}
	if p, err := readProc(g.ID); err != nil || p.start != start {
		reapOrphans(g.ID)
	}
	return len(left) == 0
}
