//go:build linux

package action

import (
	"os"
	"testing"
)

// BenchmarkExec is one attempt that runs /bin/true, with this binary (which holds most of what the daemon's does) as the supervisor.
func BenchmarkExec(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	act, err := NewExec(ExecOptions{Command: []string{"/bin/true"}, Supervisor: []string{self, asSupervisor}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if o := act.Run(b.Context(), attempt()); o.Cause != "" {
			b.Fatal(o.Cause)
		}
	}
}
