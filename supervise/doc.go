// Package supervise is the small process that stands between the daemon and a command that a turn runs.
//
// The daemon starts its own binary again as a supervisor, which leads a new session and process group, waits on a
// control pipe for what to run, starts the command in the group and gives the command its own standard streams.
// Nothing runs before the daemon has sent the [Spec], so the daemon can first record which group is about to act.
//
// The supervisor ends only when every process that the command started is gone, including those that made a session
// of their own: it is their subreaper, so none can slip out of its reach. It starts ending them when the command
// exits, when the daemon asks for it, and when the daemon's end of the control pipe closes, which a kill -9 of the
// daemon does too (promises P3 and P33).
//
// A closed pipe does not tell of a daemon that is frozen or cut off while another takes over its work. For that the Spec can ask for
// beats: when none has come for Spec.Beat, everything is killed at once. Time is counted by a clock that goes on while processes are
// stopped and while the system sleeps, and a supervisor that was frozen itself kills when it thaws, whatever waits in its pipe.
// No clock inside a virtual machine tells that the machine was paused if its host also held the guest's clocks: after that, only
// the daemon's refused writes do.
//
// Two limits. A supervisor that is itself killed by SIGKILL cannot clean up: the command dies with it and [Kill] finds
// the rest of its session, but not a process that had made a session of its own. And a process that runs under another
// user (setuid) cannot be signalled: then the supervisor waits until it ends by itself. Away from Linux there is no
// subreaper and no /proc: there the process group is all that is reached.
//
// The package imports the standard library and x/sys only, and does no work when it is initialised (package early does, for main).
package supervise
