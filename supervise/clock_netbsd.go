package supervise

// aliveClock is CLOCK_MONOTONIC, which x/sys does not name on NetBSD.
const aliveClock = 3
