package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/triggerd/triggerd/console"
)

// writeTurn tells a turn's story from its event to its output.
func (c *cli) writeTurn(w io.Writer, t console.TurnDetail) error {
	err := fields(w,
		"turn", t.Hash,
		"key", t.Key,
		"trigger", t.Trigger,
		"thread", t.Thread,
		"state", t.State+attempts(t.Attempt),
		"error", t.Error,
		"opened", c.when(t.Opened),
		"next try", c.whenPtr(t.NotBefore),
		"finished", c.finished(t.TurnInfo),
		"retry of", t.ReplayOf,
		"outcome", outcome(t.Outcome),
		"event", c.eventLine(t),
	)
	if err != nil {
		return err
	}
	if t.Input != nil {
		section(w, "INPUT")
		if s, ok := t.Input.(string); ok {
			_, _ = fmt.Fprintln(w, cleanLines(s))
		} else {
			_, _ = fmt.Fprintln(w, indent(t.Input))
		}
	}
	section(w, "HISTORY")
	if err := writeTable(w, t.History, c.historyColumns()); err != nil {
		return err
	}
	if t.Output != "" {
		section(w, "OUTPUT")
		_, err = fmt.Fprintln(w, strings.TrimRight(cleanLines(t.Output), "\n"))
	}
	return err
}

func attempts(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d)", n)
}

func (c *cli) finished(t console.TurnInfo) string {
	if t.Finished == nil {
		return ""
	}
	return fmt.Sprintf("%s (after %s)", c.when(*t.Finished), t.Finished.Sub(t.Opened).Round(time.Millisecond))
}

func outcome(o *console.Outcome) string {
	if o == nil {
		return ""
	}
	var parts []string
	if o.ExitCode != nil {
		parts = append(parts, "exit code "+number(*o.ExitCode))
	}
	if o.Status != 0 {
		parts = append(parts, "status "+number(o.Status))
	}
	out := size(o.OutputBytes) + " of output"
	if o.OutputCut {
		out += ", cut"
	}
	return strings.Join(append(parts, out), ", ")
}

func (c *cli) eventLine(t console.TurnDetail) string {
	e := t.Event
	line := fmt.Sprintf("%s/%s, %s, %s, %s", e.Connection, e.ID, e.Type, c.when(e.Time), size(e.Bytes))
	if e.Seq > 0 {
		line += ", sequence " + strconv.FormatUint(e.Seq, 10)
	}
	return line
}

func (c *cli) historyColumns() columns[console.TurnEntry] {
	return columns[console.TurnEntry]{
		header: []string{"TIME", "STATE", "ATTEMPT", "DAEMON", "CAUSE"},
		row: func(e console.TurnEntry) []string {
			attempt := ""
			if e.Attempt > 0 {
				attempt = number(e.Attempt)
			}
			return []string{c.when(e.Time), e.State, attempt, e.Daemon, e.Cause}
		},
		whole: true,
	}
}
