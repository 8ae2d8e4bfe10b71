package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/console"
)

// eventPage is how many events one request asks for when all are wanted.
const eventPage = 1000

func (c *cli) eventsCommand() *cobra.Command {
	return c.group("events", "Look at stored events", c.eventsList(), c.eventsShow())
}

func (c *cli) eventsList() *cobra.Command {
	var flags listFlags
	var q console.EventQuery
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List stored events, newest first",
		Example: "  triggerd events list --connection orders --type 'order.*' --limit 10",
		Args:    want(),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&q.Connection, "connection", "", "only of this connection")
	cmd.Flags().StringVar(&q.Type, "type", "", "only of this type; a glob as in a trigger's `event`")
	cmd.Flags().Uint64Var(&q.After, "after", 0, "continue after this sequence, the last one of the page before")
	cmd.RunE = c.ask(func(ctx context.Context, b console.Backend, _ []string) error {
		if err := flags.check(c); err != nil {
			return err
		}
		q.Limit = flags.limit
		list, err := listEvents(ctx, b, q)
		if err != nil {
			return err
		}
		return printList(c, flags.jsonl, list, c.eventColumns())
	})
	return cmd
}

// listEvents asks page by page when all events are wanted: the stream has no small bound.
func listEvents(ctx context.Context, b console.Backend, q console.EventQuery) ([]console.EventInfo, error) {
	if q.Limit > 0 {
		return b.Events(ctx, q)
	}
	var all []console.EventInfo
	q.Limit = eventPage
	for {
		page, err := b.Events(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < eventPage {
			return all, nil
		}
		q.After = page[len(page)-1].Seq
	}
}

func (c *cli) eventColumns() columns[console.EventInfo] {
	return columns[console.EventInfo]{
		header: []string{"SEQ", "CONNECTION", "ID", "TYPE", "RECEIVED", "SIZE"},
		row: func(e console.EventInfo) []string {
			return []string{strconv.FormatUint(e.Seq, 10), e.Connection, e.ID, e.Type, c.when(e.Received), size(e.Bytes)}
		},
	}
}

func (c *cli) eventsShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show EVENT",
		Short:   "Show one event with its payload and the turns it opened",
		Long:    "Show one event with its payload and the turns it opened. EVENT is its sequence, <connection>/<id>, or a unique prefix of that or of the id.",
		Example: "  triggerd events show orders/42",
		Args:    want("EVENT"),
		RunE: c.ask(func(ctx context.Context, b console.Backend, args []string) error {
			e, err := b.Event(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(c, e, func(w io.Writer) error { return c.writeEvent(w, e) })
		}),
	}
}

func (c *cli) writeEvent(w io.Writer, e console.EventDetail) error {
	cursor := ""
	if e.Cursor != nil {
		cursor = strconv.Quote(*e.Cursor)
	}
	hops := ""
	if e.Hops > 0 {
		hops = number(e.Hops)
	}
	err := fields(w,
		"event", e.Connection+"/"+e.ID,
		"sequence", strconv.FormatUint(e.Seq, 10),
		"type", e.Type,
		"time", c.when(e.Time),
		"received", c.when(e.Received),
		"content type", e.ContentType,
		"size", size(e.Bytes),
		"cursor", cursor,
		"hops", hops,
	)
	if err != nil {
		return err
	}
	if len(e.Headers) > 0 {
		section(w, "HEADERS")
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
			pairs = append(pairs, name, e.Headers[name])
		}
		if err := fields(w, pairs...); err != nil {
			return err
		}
	}
	if text := payloadText(e); text != "" {
		section(w, "PAYLOAD")
		_, _ = fmt.Fprintln(w, text)
	}
	section(w, "TURNS")
	if len(e.Turns) == 0 {
		_, err := fmt.Fprintln(w, "none (`triggerd explain "+strconv.FormatUint(e.Seq, 10)+"` says why)")
		return err
	}
	return writeTable(w, e.Turns, c.turnColumns())
}

// payloadText shows a payload as what it is: JSON indented, text as text, bytes as a hex dump.
func payloadText(e console.EventDetail) string {
	switch {
	case e.Text != nil:
		return cleanLines(*e.Text)
	case len(e.Base64) > 0:
		dump := hex.Dump(e.Base64)
		return dump[:len(dump)-1]
	case len(e.Payload) > 0:
		return indent(e.Payload)
	}
	return ""
}

// indent shows v as indented JSON, with the characters that it has.
func indent(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("(cannot be shown: %v)", err)
	}
	return cleanLines(strings.TrimSuffix(b.String(), "\n"))
}
