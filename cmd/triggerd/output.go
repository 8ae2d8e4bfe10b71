package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxCell is how much of a value a table's column shows, in characters; --json has all of it.
const maxCell = 48

// listFlags are those of every list that can be long.
type listFlags struct {
	jsonl bool
	limit int
}

func (l *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.jsonl, "jsonl", false, "print one JSON object per line")
	cmd.Flags().IntVar(&l.limit, "limit", 50, "how many to show; -1 for all")
}

func (l *listFlags) check(c *cli) error {
	if l.jsonl && c.json {
		return usagef("give --json or --jsonl, not both")
	}
	if l.limit < -1 || l.limit == 0 {
		return usagef("--limit is %d: use a positive number, or -1 for all", l.limit)
	}
	return nil
}

// columns describe a table of T.
type columns[T any] struct {
	header []string
	row    func(T) []string
	whole  bool // the last column is shown whole, for sentences that are what was asked for
}

// printList prints in the form that the flags ask for. A list is always an array in JSON, also an empty one.
func printList[T any](c *cli, jsonl bool, items []T, cols columns[T]) error {
	if jsonl {
		return c.write(func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			for i := range items {
				if err := enc.Encode(items[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if c.json {
		if items == nil {
			items = []T{}
		}
		return c.printJSON(items)
	}
	return c.write(func(w io.Writer) error { return writeTable(w, items, cols) })
}

func writeTable[T any](w io.Writer, items []T, cols columns[T]) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		for i, cell := range cells {
			if cell == "" {
				cell = "-"
			}
			// The last column goes without a tab, so that no line ends in spaces.
			if i > 0 {
				_, _ = io.WriteString(tw, "\t")
			}
			_, _ = io.WriteString(tw, cell)
		}
		_, _ = io.WriteString(tw, "\n")
	}
	line(cols.header)
	for _, item := range items {
		cells := cols.row(item)
		for i := range cells {
			if cols.whole && i == len(cells)-1 {
				cells[i] = escape(cells[i], false)
			} else {
				cells[i] = cell(cells[i])
			}
		}
		line(cells)
	}
	return tw.Flush()
}

// printOne prints one thing: JSON when asked for, else what text writes.
func printOne[T any](c *cli, v T, text func(w io.Writer) error) error {
	if c.json {
		return c.printJSON(v)
	}
	return c.write(text)
}

func (c *cli) printJSON(v any) error {
	return c.write(func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}

// write buffers, and reports a full disk or a closed pipe as a failure.
func (c *cli) write(f func(w io.Writer) error) error {
	bw := bufio.NewWriter(c.Out)
	if err := f(bw); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// fields writes "name  value" lines; empty values are left out. Values may have several lines.
func fields(w io.Writer, pairs ...string) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		value := strings.ReplaceAll(cleanLines(pairs[i+1]), "\n", "\n"+strings.Repeat(" ", width+2))
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, pairs[i], value); err != nil {
			return err
		}
	}
	return nil
}

// section writes a heading over whatever follows.
func section(w io.Writer, title string) { _, _ = fmt.Fprintf(w, "\n%s\n", title) }

// cell makes s fit for a table: one line, nothing that a terminal would obey, not too long.
func cell(s string) string {
	s = escape(s, false)
	if utf8.RuneCountInString(s) > maxCell {
		s = string([]rune(s)[:maxCell-1]) + "…"
	}
	return s
}

// cleanLines keeps line breaks and tabs, and escapes everything else that a terminal would obey. Ids, types and output come from strangers.
func cleanLines(s string) string { return escape(s, true) }

func escape(s string, lines bool) string {
	safe := func(r rune) bool { return unicode.IsPrint(r) || lines && (r == '\n' || r == '\t') }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case safe(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// when shows a time in the zone of the reader, to the second.
func (c *cli) when(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case c.utc:
		return t.UTC().Format("2006-01-02 15:04:05Z")
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func (c *cli) whenPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return c.when(*t)
}

// size shows a number of bytes.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, names := float64(n)/unit, []string{"KiB", "MiB", "GiB", "TiB"}
	i := 0
	for v >= unit && i < len(names)-1 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %s", v, names[i])
}

// short is the part of a turn's hash that tables show: 50 bits, a unique prefix among millions.
func short(hash string) string { return hash[:min(10, len(hash))] }

func number(n int) string { return strconv.Itoa(n) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
