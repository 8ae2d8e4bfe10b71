package action

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/triggerd/triggerd/supervise"
)

// maxValue is the longest argument or environment value, in bytes. The kernel takes 128 KiB for one and refuses to start the
// command beyond that; payloads belong on standard input.
const maxValue = 32 << 10

// ownPrefix starts the names of the variables that triggerd sets.
const ownPrefix = "TRIGGERD_"

// inherited are the daemon's own variables that a command gets. Others may hold secrets of the daemon.
var inherited = [...]string{"PATH", "HOME", "LANG", "TZ"}

func envNameError(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("env: %q cannot name a variable", name)
	case strings.HasPrefix(name, ownPrefix):
		return fmt.Errorf("env.%s: names that begin with %s are set by triggerd", name, ownPrefix)
	}
	return nil
}

// render makes what the supervisor needs, and the command's standard input.
func (e *execAction) render(r *run) (spec supervise.Spec, stdin []byte, f *failure) {
	spec.KillAfter = e.killAfter
	for i, t := range e.command {
		what := fmt.Sprintf("command[%d]", i)
		arg, f := r.text(what, t)
		if f == nil {
			f = valueFailure(what, arg)
		}
		if f != nil {
			return spec, nil, f
		}
		spec.Args = append(spec.Args, []byte(arg))
	}
	dir, f := r.text("dir", e.dir)
	if f == nil {
		f = valueFailure("dir", dir)
	}
	if f != nil {
		return spec, nil, f
	}
	spec.Dir = []byte(dir)
	if spec.Env, f = e.environment(r); f != nil {
		return spec, nil, f
	}
	if e.stdin != nil {
		stdin, f = r.bytes("stdin", e.stdin)
	} else {
		stdin, f = r.document()
	}
	return spec, stdin, f
}

// environment is the whole environment of the command, sorted by name.
func (e *execAction) environment(r *run) ([][]byte, *failure) {
	env := make(map[string]string, len(inherited)+len(e.env)+10)
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for name, t := range e.env {
		v, f := r.text("env."+name, t)
		if f != nil {
			return nil, f
		}
		env[name] = v
	}
	maps.Copy(env, map[string]string{
		ownPrefix + "CONNECTION":      r.Connection,
		ownPrefix + "TRIGGER":         r.Trigger,
		ownPrefix + "EVENT_ID":        r.Event.ID,
		ownPrefix + "EVENT_TYPE":      r.Event.Type,
		ownPrefix + "EVENT_TIME":      r.Event.Time.UTC().Format(time.RFC3339Nano),
		ownPrefix + "TURN":            r.Key.Hash(),
		ownPrefix + "ATTEMPT":         strconv.Itoa(r.Number),
		ownPrefix + "IDEMPOTENCY_KEY": r.IdempotencyKey(),
		ownPrefix + "THREAD":          r.Thread,
		ownPrefix + "HOPS":            nextHops(&r.Event),
	})
	out := make([][]byte, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if f := valueFailure("env."+name, env[name]); f != nil {
			return nil, f
		}
		out = append(out, []byte(name+"="+env[name]))
	}
	return out, nil
}

// valueFailure refuses what cannot be an argument or a variable. It does not quote the value.
func valueFailure(what, v string) *failure {
	switch {
	case strings.IndexByte(v, 0) >= 0:
		return dead("%s: the value has a NUL byte, which neither arguments nor variables can hold; use stdin", what)
	case len(v) > maxValue:
		return dead("%s: the value has %d bytes, the limit is %d; use stdin", what, len(v), maxValue)
	}
	return nil
}
