package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

// define is a definition of a trigger on the connection "shop" with these changes.
func define(name string, change func(*Definition)) Definition {
	d := Definition{Name: name, Key: name, Connections: []string{"shop"}, Overlap: OverlapQueue}
	if change != nil {
		change(&d)
	}
	return d
}

func mustCompile(t testing.TB, defs ...Definition) *Set {
	t.Helper()
	s, err := Compile(defs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shopEvent(change func(*triggerd.Event)) *triggerd.Event {
	ev := &triggerd.Event{
		Connection: "shop", ID: "e1", Type: "order.created", Received: time.Unix(100, 0), Seq: 7,
		ContentType: "application/json", Payload: []byte(`{"n":5,"customer":"ada","items":[1,2]}`),
	}
	if change != nil {
		change(ev)
	}
	return ev
}

func ptr(s string) *string { return &s }

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		def   func(*Definition)
		event func(*triggerd.Event)
		want  Verdict
	}{
		{name: "no globs match every type", want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t"}},
		{name: "no globs do not match gap", event: func(e *triggerd.Event) { e.Type = "gap" },
			want: Verdict{Kind: Filtered, Reason: "event type gap is matched only where `event` names it"}},
		{name: "a glob may match gap", def: func(d *Definition) { d.Events = []string{"gap"} }, event: func(e *triggerd.Event) { e.Type = "gap" },
			want: Verdict{Kind: Matched, Reason: `event "gap"`, Lane: "t"}},
		{name: "the glob that matched is named", def: func(d *Definition) { d.Events = []string{"user.*", "order.**"}; d.Filter = "event.payload.n == 5" },
			want: Verdict{Kind: Matched, Reason: `event "order.**", the filter is true`, Lane: "t"}},
		{name: "no glob matches", def: func(d *Definition) { d.Events = []string{"user.*", "a"} },
			want: Verdict{Kind: Filtered, Reason: `event: none of "user.*", "a" matches type "order.created"`}},
		{name: "the one glob does not match", def: func(d *Definition) { d.Events = []string{"user.*"} },
			want: Verdict{Kind: Filtered, Reason: `event "user.*" does not match type "order.created"`}},
		{name: "the filter is false", def: func(d *Definition) { d.Filter = `event.type != "" && event.payload.n > 10` },
			want: Verdict{Kind: Filtered, Reason: "filter: event.payload.n > 10 is false: event.payload.n = 5 (int)"}},
		{name: "the filter fails", def: func(d *Definition) { d.Filter = "event.payload.author.bot" },
			want: Verdict{Kind: Errored, Reason: `filter: event.payload has no such field: "author"`}},
		{name: "the filter gives no bool", def: func(d *Definition) { d.Filter = "event.payload.n" },
			want: Verdict{Kind: Errored, Reason: "filter: the result is int, need bool"}},
		{name: "a filter on a payload that is not JSON", def: func(d *Definition) { d.Filter = "event.payload.n == 5" }, event: func(e *triggerd.Event) { e.Payload = []byte("{broken") },
			want: Verdict{Kind: Errored, Reason: `filter: event.payload is string, there is no such field: "n"`}},
		{name: "a type that does not match hides a filter that fails", def: func(d *Definition) { d.Events, d.Filter = []string{"a"}, "event.payload.nope" },
			want: Verdict{Kind: Filtered, Reason: `event "a" does not match type "order.created"`}},
		{name: "a thread", def: func(d *Definition) { d.Thread = "event.payload.customer" },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Thread: "ada", Lane: "t/ada"}},
		{name: "a thread keeps the trigger's first name", def: func(d *Definition) { d.Key, d.Thread, d.Scope = "old", "event.payload.n", "trigger" },
			want: Verdict{Trigger: "old", Kind: Matched, Reason: "every event type but gap and schedule.missed", Thread: "5", Lane: "old/5"}},
		{name: "a shared thread", def: func(d *Definition) {
			d.Thread, d.Scope, d.Overlap = "event.payload.customer", "customers", OverlapAllow
		},
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Thread: "ada", Lane: "@customers/ada"}},
		{name: "an empty thread is none", def: func(d *Definition) { d.Thread, d.Scope = "event.payload.?nope", "customers" },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t"}},
		{name: "the thread fails", def: func(d *Definition) { d.Thread = "event.payload.items" },
			want: Verdict{Kind: Errored, Reason: "thread: the result is list, need string, a number, bool or timestamp"}},
		{name: "skip without a thread waits for the trigger", def: func(d *Definition) { d.Overlap = OverlapSkip },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t"}},
		{name: "allow without a thread waits for nothing", def: func(d *Definition) { d.Overlap = OverlapAllow },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed"}},
		{name: "an input keeps its type", def: func(d *Definition) { d.Input = ptr("${{ event.payload.items }}") },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t", Input: []any{int64(1), int64(2)}, HasInput: true}},
		{name: "an empty input is an input", def: func(d *Definition) { d.Input = ptr("") },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t", Input: "", HasInput: true}},
		{name: "the input fails", def: func(d *Definition) { d.Thread, d.Input = "event.id", ptr("a ${{ event.payload.nope }}") },
			want: Verdict{Kind: Errored, Reason: `input: event.payload has no such field: "nope"`}},
		{name: "disabled", def: func(d *Definition) { d.Disabled, d.Filter = true, "event.payload.nope" },
			want: Verdict{Kind: Disabled, Reason: "the trigger has enabled: false"}},
		{name: "before its time", def: func(d *Definition) { d.StartSeq = 7 },
			want: Verdict{Kind: NotStarted, Reason: "event 7 came before the trigger, which starts after event 7"}},
		{name: "the first of its time", def: func(d *Definition) { d.StartSeq = 6 },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t"}},
		{name: "an event that is not stored yet is of its time", def: func(d *Definition) { d.StartSeq = 6 }, event: func(e *triggerd.Event) { e.Seq = 0 },
			want: Verdict{Kind: Matched, Reason: "every event type but gap and schedule.missed", Lane: "t"}},
		{name: "an expression that would not end", def: func(d *Definition) { d.Filter = "lists.range(9999).all(a, lists.range(9999).all(b, true))" },
			want: Verdict{Kind: Errored, Reason: "filter: the expression is too expensive for this value: it needs more than 1000000 cost units"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, ev := mustCompile(t, define("t", tt.def)), shopEvent(tt.event)
			want := tt.want
			want.Name = "t"
			if want.Trigger == "" {
				want.Trigger = "t"
			}
			got := s.Decide(ev)
			if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
				t.Fatalf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestManualEventsReachTheirTargetOnly(t *testing.T) {
	s := mustCompile(t,
		define("a", func(d *Definition) {
			d.Events, d.Filter, d.Thread, d.Input = []string{"never"}, "false", "event.payload.n", ptr("${{ event.type }}")
		}),
		define("b", func(d *Definition) { d.Key = "old" }),
		define("old2", func(d *Definition) { d.Key = "b2" }),
		define("off", func(d *Definition) { d.Disabled = true }),
	)
	fire := func(target, payload string) []Verdict {
		ev := shopEvent(func(e *triggerd.Event) { e.Connection, e.Target, e.Payload = "manual", target, []byte(payload) })
		decided, matched := s.Decide(ev), s.Matches(ev)
		if len(decided) > 0 && decided[0].Kind != Disabled && !reflect.DeepEqual(decided, matched) {
			t.Fatalf("Decide %+v, Matches %+v", decided, matched)
		}
		return decided
	}
	t.Run("types and filter do not apply, thread and input do", func(t *testing.T) {
		want := []Verdict{{Trigger: "a", Name: "a", Kind: Matched, Reason: "fired by hand: event types and filter do not apply",
			Thread: "5", Lane: "a/5", Input: "order.created", HasInput: true}}
		if got := fire("a", `{"n":5}`); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v", got)
		}
	})
	t.Run("an expression that fails is an error", func(t *testing.T) {
		if got := fire("a", `{}`); len(got) != 1 || got[0].Kind != Errored || !strings.HasPrefix(got[0].Reason, "thread: ") {
			t.Fatalf("got %+v", got)
		}
	})
	t.Run("by its first name and by its present one", func(t *testing.T) {
		for target, want := range map[string]string{"old": "b", "b": "b", "b2": "old2"} {
			if got := fire(target, `{}`); len(got) != 1 || got[0].Name != want {
				t.Errorf("%s: got %+v", target, got)
			}
		}
	})
	t.Run("a target that is not there", func(t *testing.T) {
		for _, target := range []string{"", "nope"} {
			if got := fire(target, `{}`); got != nil {
				t.Errorf("%q: got %+v", target, got)
			}
		}
	})
	t.Run("a disabled one stays off", func(t *testing.T) {
		if got := fire("off", `{}`); len(got) != 1 || got[0].Kind != Disabled {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestOwnEventsDoNotComeBack(t *testing.T) {
	own := func(d *Definition) { d.Connections, d.Events = []string{"triggerd", "shop"}, []string{"turn.dead"} }
	s := mustCompile(t, define("alert", own), define("other", own))
	ev := shopEvent(func(e *triggerd.Event) {
		e.Connection, e.Type, e.Headers = "triggerd", "turn.dead", map[string]string{"trigger": "alert"}
	})
	got := s.Decide(ev)
	if got[0].Kind != Filtered || got[0].Reason != "a trigger does not fire on its own turns" || got[1].Kind != Matched {
		t.Fatalf("got %+v", got)
	}
	if m := s.Matches(ev); len(m) != 1 || m[0].Name != "other" {
		t.Fatalf("Matches gave %+v", m)
	}
	ev.Connection = "shop" // the same header from outside says nothing
	if m := s.Matches(ev); len(m) != 2 {
		t.Fatalf("Matches gave %+v", m)
	}
}

func TestDecideListsAllOfTheConnectionInNameOrder(t *testing.T) {
	s := mustCompile(t,
		define("c", nil),
		define("a", func(d *Definition) { d.Key = "z"; d.Events = []string{"nope"} }),
		define("b", func(d *Definition) { d.Connections = []string{"shop", "shop", "other"} }),
		define("elsewhere", func(d *Definition) { d.Connections = []string{"other"} }),
	)
	var names []string
	for _, v := range s.Decide(shopEvent(nil)) {
		names = append(names, v.Name)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(names, want) || !slices.Equal(s.Names("shop"), want) {
		t.Fatalf("got %v and %v", names, s.Names("shop"))
	}
	unknown := shopEvent(func(e *triggerd.Event) { e.Connection = "nowhere" })
	if s.Decide(unknown) != nil || s.Matches(unknown) != nil || s.Names("nowhere") != nil {
		t.Fatal("verdicts for a connection without triggers")
	}
}

func TestCompileFindsAllProblems(t *testing.T) {
	_, err := Compile([]Definition{
		{Name: "1x", Key: "", Connections: []string{"a.b"}, Events: []string{"a..b", "ok"}, Filter: "event.paylod", Thread: "[1]", Scope: "a/b", Input: ptr("${{ secrets.x }}"), Overlap: "latest"},
		define("twice", nil),
		define("twice", func(d *Definition) { d.Key = "other" }),
		define("third", func(d *Definition) { d.Key = "twice"; d.Filter = "  " }),
	})
	var got []string
	for _, fe := range FieldErrors(err) {
		got = append(got, fe.Trigger+" "+fe.Field)
	}
	want := []string{"1x name", "1x key", "1x connection", "1x event", "1x overlap", "1x scope", "1x filter", "1x thread", "1x input",
		"twice name", "third filter", "third key"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v: %v", got, err)
	}
	var at *expr.Error
	if !errors.As(FieldErrors(err)[6], &at) || at.Column != 6 {
		t.Fatalf("the filter's place is %+v", at)
	}
	if FieldErrors(nil) != nil || FieldErrors(errors.New("x")) != nil {
		t.Fatal("field errors out of nothing")
	}
}

func TestDefinitionsSurviveJSON(t *testing.T) {
	full := Definition{Name: "n", Key: "k", Connections: []string{"shop"}, Events: []string{"a.*"}, Filter: `event.payload.s == "<&>"`,
		Thread: "event.id", Scope: "s", Input: ptr(""), Overlap: OverlapSkip, Disabled: true, StartSeq: 1<<63 + 1}
	for _, d := range []Definition{full, define("bare", nil)} {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Definition
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, d) {
			t.Fatalf("%s became %+v, %v", b, back, err)
		}
	}
}

// TestMatchesAgreesWithDecide: the hot path gives Decide's matched and errored verdicts, the same in everything, and both give the same twice.
func TestMatchesAgreesWithDecide(t *testing.T) {
	globs := rapid.SampledFrom([]string{"order.created", "order.*", "order.**", "**", "*", "*.created", "user.*", "gap", "g*", "order.created.late"})
	filters := rapid.SampledFrom([]string{"", "event.payload.n == 5", "event.payload.n > 5", "event.payload.nope == 1", `event.type.startsWith("order")`, "event.payload"})
	threads := rapid.SampledFrom([]string{"", "event.payload.customer", "event.payload.?nope", "event.payload.items"})
	inputs := rapid.SampledFrom([]*string{nil, ptr(""), ptr("${{ event.payload.items }}"), ptr("x ${{ event.payload.nope }}")})
	conns := rapid.SampledFrom([]string{"shop", "triggerd", "other"})
	keys := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
	rapid.Check(t, func(t *rapid.T) {
		var defs []Definition
		for i, key := range rapid.SliceOfNDistinct(keys, 0, 6, rapid.ID).Draw(t, "keys") {
			defs = append(defs, Definition{
				Name: fmt.Sprintf("n%d", (i*7)%5*10+i), Key: key, Connections: rapid.SliceOfN(conns, 0, 3).Draw(t, "connections"),
				Events: rapid.SliceOfN(globs, 0, 3).Draw(t, "events"), Filter: filters.Draw(t, "filter"), Thread: threads.Draw(t, "thread"),
				Scope: rapid.SampledFrom([]string{"", "trigger", "shared"}).Draw(t, "scope"), Input: inputs.Draw(t, "input"),
				Overlap:  rapid.SampledFrom([]string{OverlapQueue, OverlapSkip, OverlapAllow}).Draw(t, "overlap"),
				Disabled: rapid.IntRange(0, 5).Draw(t, "disabled") == 0, StartSeq: rapid.Uint64Range(0, 8).Draw(t, "start"),
			})
		}
		s, err := Compile(defs)
		if err != nil {
			t.Fatal(err)
		}
		ev := shopEvent(func(e *triggerd.Event) {
			e.Connection = rapid.SampledFrom([]string{"shop", "triggerd", "other", "manual"}).Draw(t, "connection")
			e.Type = rapid.SampledFrom([]string{"order.created", "order", "order.created.late", "user.created", "gap", "x", "..", "order."}).Draw(t, "type")
			e.Payload = []byte(rapid.SampledFrom([]string{string(e.Payload), `{"n":6}`, "", "text", "[]", "\xff"}).Draw(t, "payload"))
			e.Headers = map[string]string{"trigger": keys.Draw(t, "header")}
			e.Target = keys.Draw(t, "target")
			e.Seq = rapid.Uint64Range(0, 9).Draw(t, "seq")
		})
		decided := s.Decide(ev)
		if again := s.Decide(ev); !reflect.DeepEqual(decided, again) {
			t.Fatalf("first %+v, then %+v", decided, again)
		}
		var want []Verdict
		for _, v := range decided {
			if v.Reason == "" {
				t.Fatalf("no reason: %+v", v)
			}
			if v.Kind == Matched || v.Kind == Errored {
				want = append(want, v)
			}
		}
		if got := s.Matches(ev); !reflect.DeepEqual(got, want) {
			t.Fatalf("Matches %+v, Decide %+v", got, want)
		}
	})
}

func TestSetIsSafeForConcurrentUse(t *testing.T) {
	s := mustCompile(t,
		define("a", func(d *Definition) { d.Filter, d.Thread = "event.payload.n == 5", "event.payload.customer" }),
		define("b", func(d *Definition) { d.Filter = `"x" in event.payload.n` }),
	)
	want := s.Decide(shopEvent(nil))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got := s.Decide(shopEvent(nil)); !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v", got)
				}
				s.Matches(shopEvent(nil))
			}
		})
	}
	wg.Wait()
}

// BenchmarkMatches: one event against n triggers of its connection, one of which matches. "types": each trigger names another type.
// "filters": all take the type, each has another filter.
func BenchmarkMatches(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		for kind, change := range map[string]func(i int, d *Definition){
			"types":   func(i int, d *Definition) { d.Events = []string{fmt.Sprintf("order.kind%d", i)} },
			"filters": func(i int, d *Definition) { d.Filter = fmt.Sprintf("event.payload.n == %d", i) },
		} {
			defs := make([]Definition, n)
			for i := range defs {
				defs[i] = define(fmt.Sprintf("t%d", i), func(d *Definition) { change(i, d) })
			}
			s := mustCompile(b, defs...)
			ev := shopEvent(func(e *triggerd.Event) {
				e.Type, e.Payload = "order.kind0", []byte(`{"n":0,"text":"`+strings.Repeat("x", 1000)+`"}`)
			})
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got := s.Matches(ev); len(got) != 1 {
						b.Fatal(got)
					}
				}
			})
		}
	}
}
