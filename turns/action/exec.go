package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/supervise"
	"github.com/triggerd/triggerd/turns"
)

const (
	// DefaultKillAfter is the time between SIGTERM and SIGKILL when the options do not say.
	DefaultKillAfter = 10 * time.Second
	// lateAfter is how much longer than KillAfter a supervisor may take before the daemon kills its group itself:
	// it answers within milliseconds unless somebody has stopped it.
	lateAfter = 5 * time.Second
	// goneGrace is how long a group of an earlier owner may end by itself. Its supervisor needs half a second after that owner's death.
	goneGrace = 2 * time.Second
	// maxErrorLine bounds what a cause quotes of a command's standard error.
	maxErrorLine = 200
)

// ExecOptions configures an exec action. Command, Dir, Stdin and the values of Env are templates.
type ExecOptions struct {
	Command    []string          // the program and its arguments; there is no shell in between
	Dir        string            // working directory; "" = the daemon's
	Env        map[string]string // besides what every command gets
	Stdin      *string           // nil = the event as one line of JSON
	RetryCodes []int             // exit codes that are retried; codes in neither list are too
	DeadCodes  []int             // exit codes that are not retried
	KillAfter  time.Duration     // between SIGTERM and SIGKILL; 0 = DefaultKillAfter
	MaxOutput  int64             // kept of standard output and error together; 0 = DefaultMaxOutput, negative = nothing
	Secrets    Secrets
	Redact     Redact

	// Beat, when over 0, fences the command: it is killed, with everything that it started and without a grace period, at most Beat
	// after the last moment at which Alive was true, even if this process is frozen then. Alive is asked every Beat/4 and just before
	// the command starts; nil = always true. It must not block and is called from several goroutines.
	Beat  time.Duration
	Alive func() bool

	Supervisor []string // what starts supervise.Main in a process of its own, for example {"/proc/self/exe", supervise.Argument}
}

type execAction struct {
	base
	command    []*expr.Template
	dir        *expr.Template
	env        map[string]*expr.Template
	stdin      *expr.Template // nil = the document
	deadCodes  []int
	killAfter  time.Duration
	lateAfter  time.Duration
	maxOutput  int64
	beat       time.Duration
	alive      func() bool
	supervisor []string
	host       string
}

// NewExec compiles an exec action. The error names every field that can never work.
//
// A command gets the trigger's environment, PATH, HOME, LANG and TZ of the daemon, and
// TRIGGERD_CONNECTION, _TRIGGER, _EVENT_ID, _EVENT_TYPE, _EVENT_TIME (RFC 3339), _TURN (the turn's hash), _ATTEMPT, _IDEMPOTENCY_KEY,
// _THREAD and _HOPS (to be sent on as Triggerd-Hops with what the command causes); nothing else, and never the payload.
// It ends together with everything that it started.
func NewExec(o ExecOptions) (turns.Action, error) {
	e := &execAction{
		base:      base{secrets: o.Secrets, redact: o.Redact},
		deadCodes: slices.Clone(o.DeadCodes), killAfter: o.KillAfter, lateAfter: lateAfter,
		maxOutput: o.MaxOutput, beat: o.Beat, alive: o.Alive, supervisor: slices.Clone(o.Supervisor),
	}
	if e.alive == nil {
		e.alive = func() bool { return true }
	}
	if e.killAfter <= 0 {
		e.killAfter = DefaultKillAfter
	}
	if e.maxOutput == 0 {
		e.maxOutput = DefaultMaxOutput
	}
	e.maxOutput = max(e.maxOutput, 0)

	var err error
	errs := []error{o.check()}
	for i, arg := range o.Command {
		t, err := e.compile(fmt.Sprintf("command[%d]", i), arg)
		e.command, errs = append(e.command, t), append(errs, err)
	}
	e.dir, err = e.compile("dir", o.Dir)
	errs = append(errs, err)
	e.env, err = e.compileMap("env", o.Env)
	errs = append(errs, err)
	if o.Stdin != nil {
		e.stdin, err = e.compile("stdin", *o.Stdin)
		errs = append(errs, err)
	}
	e.host, err = os.Hostname()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return e, nil
}

func (o *ExecOptions) check() error {
	var errs []error
	if len(o.Command) == 0 || o.Command[0] == "" {
		errs = append(errs, errors.New("command: name a program"))
	}
	if o.Beat < 0 {
		errs = append(errs, fmt.Errorf("beat: %v is negative", o.Beat))
	}
	if len(o.Supervisor) == 0 {
		errs = append(errs, errors.New("no supervisor given"))
	}
	for name := range o.Env {
		if err := envNameError(name); err != nil {
			errs = append(errs, err)
		}
	}
	for _, code := range slices.Concat(o.RetryCodes, o.DeadCodes) {
		if code < 1 || code > 255 {
			errs = append(errs, fmt.Errorf("exit_codes: %d is not between 1 and 255", code))
		}
	}
	for _, code := range o.RetryCodes {
		if slices.Contains(o.DeadCodes, code) {
			errs = append(errs, fmt.Errorf("exit_codes: %d is both in retry and in dead", code))
		}
	}
	return errors.Join(errs...)
}

// NeedsRunning implements [turns.Action]: a later owner must know which process group to wait for.
func (e *execAction) NeedsRunning() bool { return true }

// Run implements [turns.Action]. It returns when no process of the command is left. When ctx ends, the command has KillAfter
// to end by itself, but none when the cause is [triggerd.ErrFenced]: then a successor may be about to run it again.
func (e *execAction) Run(ctx context.Context, a *turns.Attempt) triggerd.Outcome {
	return e.attempt(ctx, a, e.exec)
}

func (e *execAction) exec(r *run) triggerd.Outcome {
	spec, stdin, f := e.render(r)
	if f != nil {
		return f.outcome()
	}
	out := newCapture(e.maxOutput)
	argv := append(slices.Clone(e.supervisor), r.Trigger, r.Key.Hash()) // the last two are for people who look at the process list
	h, err := supervise.Launch(argv, supervise.Streams{Stdin: bytes.NewReader(stdin), Stdout: out, Stderr: out.stderr()})
	if err != nil {
		return retry("%v", err).outcome()
	}
	if f := e.begin(r, h, spec); f != nil {
		return f.outcome()
	}
	rep, err := e.wait(r.ctx, h)
	return e.outcome(r, rep, err, out)
}

// begin lets the command start once the turn's `running` entry is stored; if it does not, nothing of it has run and nothing is left.
func (e *execAction) begin(r *run, h *supervise.Handle, spec supervise.Spec) (f *failure) {
	begun := false
	defer func() {
		if !begun { // Started may have panicked
			h.Abort()
		}
	}()
	if r.Started == nil {
		return dead("the turn cannot record its process group")
	}
	g := h.Group()
	if err := r.Started(r.ctx, turns.Process{Host: e.host, Group: g.ID, Started: g.Started}); err != nil {
		return r.orInterrupted("record the start of the command: %w", err)
	}
	if f := r.interrupted(); f != nil {
		return f
	}
	if e.beat > 0 {
		spec.Beat, spec.Since = e.beat, supervise.Now() // before the question, so that a freeze after its answer counts
		if !e.alive() {
			return retry("not started: another daemon may be the owner of this turn by now")
		}
	}
	if err := h.Run(r.ctx, spec); err != nil {
		return r.orInterrupted("start the command: %w", err)
	}
	begun = true
	return nil
}

// orInterrupted is a retry: because of the context if it has ended, else because of err.
func (r *run) orInterrupted(format string, err error) *failure {
	if f := r.interrupted(); f != nil {
		return f
	}
	return retry("%v", fmt.Errorf(format, err))
}

// wait returns when the group is gone, by itself or because ctx ended.
func (e *execAction) wait(ctx context.Context, h *supervise.Handle) (supervise.Report, error) {
	defer e.beats(h)()
	type result struct {
		rep supervise.Report
		err error
	}
	done := make(chan result, 1)
	go func() {
		rep, err := h.Wait()
		done <- result{rep, err}
	}()
	select {
	case res := <-done:
		return res.rep, res.err
	case <-ctx.Done():
	}
	forever := context.WithoutCancel(ctx) // Kill has no deadline, hence no error
	if errors.Is(context.Cause(ctx), triggerd.ErrFenced) {
		_ = supervise.Kill(forever, h.Group())
		res := <-done
		res.rep.Terminated = res.rep.Signal == int(unix.SIGKILL)
		return res.rep, res.err
	}
	h.Terminate()
	late := time.NewTimer(e.killAfter + e.lateAfter)
	defer late.Stop()
	select {
	case res := <-done:
		return res.rep, res.err
	case <-late.C:
	}
	_ = supervise.Kill(forever, h.Group())
	res := <-done
	return res.rep, res.err
}

// beats tells the supervisor that the daemon is alive, for as long as it is, until stop is called. They go on while the command
// is being ended: that may take long, and fencing holds there too.
func (e *execAction) beats(h *supervise.Handle) (stop func()) {
	if e.beat <= 0 {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(max(e.beat/4, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			if e.alive() {
				h.Beat()
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func (e *execAction) outcome(r *run, rep supervise.Report, err error, out *capture) triggerd.Outcome {
	var o triggerd.Outcome
	e.keep(&o.Result, out.head, out.total, e.maxOutput)
	if err != nil {
		f := r.orInterrupted("%w", err)
		o.Verb, o.Cause = f.verb, f.cause
		return o
	}
	if rep.Error != "" {
		o.Verb, o.Cause = triggerd.Dead, rep.Error
		if rep.Transient {
			o.Verb = triggerd.Retry
		}
		return o
	}
	o.Result.ExitCode = &rep.Exit
	if rep.Silent > 0 {
		o.Verb, o.Cause = triggerd.Retry, fmt.Sprintf("killed: the daemon was silent for %v", rep.Silent.Round(10*time.Millisecond))
		return o
	}
	if f := r.interrupted(); f != nil && rep.Terminated {
		o.Verb, o.Cause = f.verb, f.cause
		return o
	}
	switch {
	case rep.Exit == 0 && rep.Signal == 0:
		o.Verb = triggerd.Done
		return o
	case slices.Contains(e.deadCodes, rep.Exit):
		o.Verb = triggerd.Dead
	default:
		o.Verb = triggerd.Retry
	}
	o.Cause = fmt.Sprintf("exit code %d", rep.Exit)
	if rep.Signal != 0 {
		o.Cause += fmt.Sprintf(" (killed by %s)", unix.SignalName(syscall.Signal(rep.Signal)))
	}
	if line := e.errorLine(r, out); line != "" {
		o.Cause += ": " + line
	}
	return o
}

// errorLine is the last line of standard error, bounded after secrets were replaced so that the cut cannot split one.
func (e *execAction) errorLine(r *run, out *capture) string {
	return oneLine(e.clean(r, string(out.errs.bytes())), maxErrorLine)
}

// WaitGone blocks until no process of p is left on this host: at once when there is none, when it belonged to another host, another
// boot or another container, or when its number is another process now. What lingers for 2 seconds is killed.
// A successor calls it before it runs a turn again. The error is ctx's cause.
func WaitGone(ctx context.Context, p turns.Process) error {
	if err := supervise.WaitGone(ctx, group(p), goneGrace); err != nil {
		return fmt.Errorf("wait for process group %d of an earlier attempt: %w", p.Group, err)
	}
	return nil
}

// KillGroup kills what is left of p, with SIGKILL and without a grace period, and blocks until nothing is. Otherwise as [WaitGone].
func KillGroup(ctx context.Context, p turns.Process) error {
	if err := supervise.Kill(ctx, group(p)); err != nil {
		return fmt.Errorf("kill process group %d of an earlier attempt: %w", p.Group, err)
	}
	return nil
}

func group(p turns.Process) supervise.Group { return supervise.Group{ID: p.Group, Started: p.Started} }
