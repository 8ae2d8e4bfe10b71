package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now reads the clock by which silence is measured. It is the same for all processes of a host, and means nothing elsewhere or
// after a restart of the host. On Linux it goes on while the system sleeps, unlike what package time measures with.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(aliveClock, &ts); err != nil {
		panic("read the clock: " + err.Error()) // cannot happen: the clock exists and ts is ours
	}
	return time.Duration(ts.Nano())
}
