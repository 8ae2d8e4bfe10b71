//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var name, after = parse(os.Getenv("TRIGGERD_FAILPOINT"))

var hits atomic.Int64

func parse(s string) (string, int64) {
	name, n, ok := strings.Cut(s, ":")
	if !ok {
		return name, 1
	}
	after, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		panic("TRIGGERD_FAILPOINT wants <name>:<n>, got " + s)
	}
	return name, after
}

// Hit kills the process at the configured call of the configured point.
func Hit(point string) {
	if point != name || hits.Add(1) != after {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing more may happen
}
