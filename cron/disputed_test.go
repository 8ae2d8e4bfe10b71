package cron

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of disputed schedules in docs/schedules.md")

// Where the table stands in the page.
const (
	disputedPage  = "../docs/schedules.md"
	disputedBegin = "<!-- disputed: written by go test ./cron -run Disputed -update -->\n"
	disputedEnd   = "<!-- end of disputed -->\n"
)

// whyOurs says why an answer to a disputed question is ours.
func whyOurs(c oracleCase, s Schedule) string {
	sp, _ := s.(*spec)
	has := func(tag string) bool { return slices.Contains(c.Tags, tag) }
	forward := has("spring") || has("forward")
	switch {
	case has("descriptor"):
		return "a name that people use"
	case has("dom-dow-star") && sp.anyDay:
		return "a day field begins with `*`: both must match"
	case has("dom-dow-star"):
		return "both day fields name days: either matches, also `1-31` and `0-6`"
	case sp.interval && forward:
		return "interval: times in the gap do not exist"
	case sp.interval:
		return "interval: the repeated hour is kept, each time comes twice"
	case forward:
		return "fixed time: once, right after the gap"
	}
	return "fixed time: on the first occurrence only"
}

// The page says for every disputed case of the corpus which answer is ours, and why; the answers are the model's of Debian's cron.
func TestDisputedTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| schedule | zone | after | ours | why |\n|---|---|---|---|---|\n")
	for _, c := range readLines[oracleCase](t, "disagree.jsonl", 60) {
		s, err := Parse(c.Expr, Options{Zone: location(t, c.TZ)})
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		at := c.From
		for range min(3, len(c.Expected)) {
			at = s.Next(at)
			ours = append(ours, at.Format("01-02 15:04 -07:00"))
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", c.Expr, c.TZ, c.From.UTC().Format(time.RFC3339), strings.Join(ours, ", "), whyOurs(c, s))
	}
	page, err := os.ReadFile(disputedPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), disputedBegin)
	have, after, ok2 := strings.Cut(rest, disputedEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", disputedPage)
	}
	if *update {
		if err := os.WriteFile(disputedPage, []byte(before+disputedBegin+table.String()+disputedEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != table.String() {
		t.Errorf("the table is another one than\n%s", table.String())
	}
}
