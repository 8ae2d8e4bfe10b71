package supervise

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// File descriptors that a supervisor is started with, besides the command's standard streams on 0 to 2.
const (
	controlFD = 3 // the daemon writes the Spec, then beats and terminates; its closing ends the command
	reportFD  = 4 // the supervisor writes one Report, then closes it by exiting
)

// maxSpec bounds what the supervisor reads. The kernel takes about 2 MiB of arguments and environment.
const maxSpec = 64 << 20

// Spec says what to run. Strings travel as bytes, so that values that are not UTF-8 arrive unchanged.
type Spec struct {
	Args      [][]byte      // the program and its arguments; a program without a slash is looked up in the PATH of Env
	Dir       []byte        // working directory; empty = the daemon's
	Env       [][]byte      // the whole environment, as NAME=value
	KillAfter time.Duration // between SIGTERM and SIGKILL

	// Beat, when over 0, ends the whole group by SIGKILL, without a grace period, once the daemon has shown no life for that long
	// ([Handle.Beat]): it may be frozen, so that nobody could stop the command when another daemon takes over.
	// A beat is taken for up to Beat/8 older than it is, so send at least four in each Beat.
	Beat time.Duration
	// Since is a value of [Now] at which the daemon was known to be alive; the first silence counts from there, so that a Spec which
	// waits out a freeze in the pipe starts nothing. 0 = when [Handle.Run] is called.
	Since time.Duration
}

// Report is how it ended.
type Report struct {
	Exit       int           // the command's exit code, 128 + Signal when a signal ended it
	Signal     int           // the signal that ended the command, else 0
	Terminated bool          // the command was still running when the daemon asked for its end
	Silent     time.Duration // the group was killed because the daemon had been silent for this long (Spec.Beat), else 0; the command itself may have ended before
	Error      string        // why the command could not be started; "" when it was
	Transient  bool          // with Error: another attempt may succeed (out of memory, program being written, ...)
}

// writeSpec blocks while the pipe is full.
func writeSpec(w io.Writer, s Spec) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	if _, err := w.Write(append(frame, b...)); err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	return nil
}

// readReport blocks until the report is complete. A supervisor that died without one gives [io.ErrUnexpectedEOF].
func readReport(r io.Reader) (Report, error) {
	var rep Report
	err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&rep)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Report{}, fmt.Errorf("read the supervisor's report: %w", err)
	}
	return rep, nil
}

func readSpec(r io.Reader) (Spec, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Spec{}, fmt.Errorf("read spec: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxSpec {
		return Spec{}, fmt.Errorf("read spec: %d bytes, the limit is %d", n, maxSpec)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return Spec{}, fmt.Errorf("read spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return Spec{}, fmt.Errorf("decode spec: %w", err)
	}
	return s, nil
}

func writeReport(w io.Writer, rep Report) error {
	b, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
