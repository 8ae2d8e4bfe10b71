//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var name, after, freeze = parse(os.Getenv("TRIGGERD_FAILPOINT"))

var hits atomic.Int64

func parse(s string) (name string, after int64, freeze bool) {
	name, n, counted := strings.Cut(s, ":")
	if !counted {
		return name, 1, false
	}
	n, how, said := strings.Cut(n, ":")
	after, err := strconv.ParseInt(n, 10, 64)
	if err != nil || said && how != "stop" {
		panic("TRIGGERD_FAILPOINT wants <name>:<n> or <name>:<n>:stop, got " + s)
	}
	return name, after, said
}

// Hit kills or freezes the process at the configured call of the configured point.
func Hit(point string) {
	if point != name || hits.Add(1) != after {
		return
	}
	if freeze {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Millisecond) // the signal may be a moment on its way, and this goes on only after a SIGCONT
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing more may happen
}
