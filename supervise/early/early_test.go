//go:build linux

package early

import (
	"bytes"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/triggerd/triggerd/supervise"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == supervise.Argument {
		panic("main was reached") // init should have left
	}
	goleak.VerifyTestMain(m)
}

func TestSupervisorRunsFromInit(t *testing.T) {
	var out, errs bytes.Buffer
	h, err := supervise.Launch([]string{"/proc/self/exe", supervise.Argument}, supervise.Streams{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	spec := supervise.Spec{Args: [][]byte{[]byte("/bin/echo"), []byte("hello")}, KillAfter: time.Second}
	if err := h.Run(t.Context(), spec); err != nil {
		h.Abort()
		t.Fatal(err)
	}
	rep, err := h.Wait()
	if err != nil || rep != (supervise.Report{}) || out.String() != "hello\n" || errs.Len() > 0 {
		t.Errorf("got %+v, %v, output %q, errors %q", rep, err, out.String(), errs.String())
	}
}
