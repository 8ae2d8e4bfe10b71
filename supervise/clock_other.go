//go:build unix && !linux && !netbsd

package supervise

import "golang.org/x/sys/unix"

// aliveClock goes on while processes are stopped; whether it does while the system sleeps differs.
const aliveClock = unix.CLOCK_MONOTONIC
