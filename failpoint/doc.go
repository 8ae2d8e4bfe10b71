// Package failpoint marks the places where crash tests kill or freeze the process.
//
// Without the build tag "failpoint" [Hit] is empty and the compiler removes it: the default binary holds no kill point.
// With it, TRIGGERD_FAILPOINT="<name>:<n>" makes the n-th call of Hit(name) kill the process with SIGKILL,
// and "<name>:<n>:stop" makes it freeze with SIGSTOP, until somebody sends SIGCONT.
package failpoint

// The named points, in the order in which an event passes them.
const (
	BeforeAppend   = "before-append"   // a request was read, nothing is stored
	AfterAppend    = "after-append"    // the event is durable, the sender has no answer yet
	BeforeOpen     = "before-open"     // the event is decided, its turns are about to be stored
	AfterOpen      = "after-open"      // the turns are open, the event is not acknowledged
	ActionStarted  = "action-started"  // the action is about to have its effect
	ActionFinished = "action-finished" // the effect happened, no record of it
	AfterRecord    = "after-record"    // the final entry is durable, nobody was told
	EndSent        = "end-sent"        // the final entry was sent, its answer was not read
	AfterRunning   = "after-running"   // the running entry is durable, the process has not been told to go
)
