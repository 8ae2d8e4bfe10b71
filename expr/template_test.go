package expr

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

func mustTemplate(t *testing.T, src string, s Scope) *Template {
	t.Helper()
	tm, err := CompileTemplate(src, s)
	if err != nil {
		t.Fatalf("compile %s: %v", src, err)
	}
	return tm
}

func actionVars(payload string) *Vars {
	return NewVars(event(payload), "the shop").ForAction(map[string]any{"text": "hi", "n": int64(7)}, Turn{
		Key: "shop:t:e1", Trigger: "t", Connection: "the shop", Attempt: 3, Thread: "th", IdempotencyKey: "idem", Opened: time.Unix(0, 0),
	})
}

func TestRender(t *testing.T) {
	const payload = `{"n":9007199254740993,"u":18446744073709551615,"f":1.5,"s":"a<b","l":[1,"x"],"o":{"b":1,"a":{"c":null}},"nul":null,"t":true}`
	for _, tt := range []struct {
		src  string
		want any
	}{
		{``, ""},
		{`plain`, "plain"},
		{`a }} b { $ $$ ${ $ {{`, "a }} b { $ $$ ${ $ {{"},
		{`$${{ x }}`, "${{ x }}"},
		{`$$${{ x }}`, "$${{ x }}"},
		{`a$${{${{ 1 }}$${{`, "a${{1${{"},
		{`${{ event.payload.n }}`, int64(9007199254740993)},
		{"${{ event.payload.n }}\n", int64(9007199254740993)},
		{`${{ event.payload.n }} `, "9007199254740993 "},
		{` ${{ event.payload.n }}`, " 9007199254740993"},
		{`${{ event.payload.u }}`, uint64(18446744073709551615)},
		{`${{ event.payload.f }}`, 1.5},
		{`${{ event.payload.t }}`, true},
		{`${{ event.payload.nul }}`, nil},
		{`${{ event.payload.?nope }}`, nil},
		{`${{ event.payload.?s }}`, "a<b"},
		{`${{ event.payload.l }}`, []any{int64(1), "x"}},
		{`${{ event.payload.o }}`, map[string]any{"b": int64(1), "a": map[string]any{"c": nil}}},
		{`${{ b"\xff" }}`, []byte{0xff}},
		{`${{ event.time }}`, time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)},
		{`${{ duration("90s") }}`, "90s"},
		{`${{ type(1) }}`, "int"},
		{`${{ {1: "a", true: "b", 2u: "c", "d": [event.payload.l, optional.none()]} }}`, map[string]any{"1": "a", "true": "b", "2": "c", "d": []any{[]any{int64(1), "x"}, nil}}},
		{`${{ event.payload.l + [2] }}`, []any{int64(1), "x", int64(2)}},
		{`${{ {'a': {'b': 1}}}}`, map[string]any{"a": map[string]any{"b": int64(1)}}},
		{`${{ {'a': {'b': 1}} }}`, map[string]any{"a": map[string]any{"b": int64(1)}}},
		{`${{"}}"}}`, "}}"},
		{`${{ '}}' + "}}" + r'\' + """}}"""  }}!`, `}}}}\}}!`},
		{`${{ "\"}}" }}.`, `"}}.`},
		{"${{ 1 // }} a comment\n }}.", "1."},
		{"${{\n  event.payload.s\n}}", "a<b"},
		{`${{ "${{" }}.`, "${{."},
		{`a ${{ event.payload.o }} b`, `a {"a":{"c":null},"b":1} b`},
		{`${{ event.payload.l }}${{ event.payload.nul }}${{ event.payload.f }} ${{ event.time }}`, `[1,"x"]1.5 2026-03-01T08:00:00Z`},
		{`${{ event.payload.s }}${{ b"ok" }}`, "a<bok"},
		{`${{ event.connection }}/${{ event.attempt }}/${{ turn.attempt }}/${{ turn.key }}/${{ turn.trigger }}/${{ turn.connection }}/${{ turn.thread }}/${{ turn.idempotency_key }}/${{ turn.opened }}`,
			"the shop/3/3/shop:t:e1/t/the shop/th/idem/1970-01-01T00:00:00Z"},
		{`${{ input.text }}-${{ input.n }}`, "hi-7"},
	} {
		t.Run(tt.src, func(t *testing.T) {
			got, err := mustTemplate(t, tt.src, Action).Render(actionVars(payload), nil)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %T %#v, %v, want %#v", got, got, err, tt.want)
			}
		})
	}
	t.Run("the whole event", func(t *testing.T) {
		got, err := mustTemplate(t, `${{ event }}`, Action).Text(actionVars(`{"a":9007199254740993}`), nil)
		want := `{"attempt":3,"connection":"the shop","cursor":null,"headers":{"x-kind":"new"},"id":"e1","payload":{"a":9007199254740993},` +
			`"received":"2026-03-01T08:00:01Z","time":"2026-03-01T08:00:00Z","type":"order.created"}`
		if err != nil || got != want {
			t.Fatalf("got %s, %v", got, err)
		}
	})
}

func TestTemplateBytes(t *testing.T) {
	binary := event("\xff\x00\xfe")
	binary.ContentType = "application/octet-stream"
	empty := event("")
	for _, tt := range []struct {
		name, src string
		ev        *triggerd.Event
		want      string
	}{
		{"bytes stay as they are", `${{ event.payload }}`, binary, "\xff\x00\xfe"},
		{"in the middle too", `a${{ event.payload }}b`, binary, "a\xff\x00\xfeb"},
		{"a string has no quotes", `${{ event.payload }}`, event(`"x"`), "x"},
		{"an object is JSON", `${{ event.payload }}`, event(`{"b": 1, "a": "<"}`), `{"a":"<","b":1}`},
		{"nothing is nothing", `${{ event.payload }}`, empty, ""},
		{"no expression", `text`, empty, "text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mustTemplate(t, tt.src, Action).Bytes(NewVars(tt.ev, "").ForAction(nil, Turn{}), nil)
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	}
	t.Run("in a text they must be UTF-8", func(t *testing.T) {
		if got, err := mustTemplate(t, `${{ event.payload }}`, Action).Text(NewVars(binary, "").ForAction(nil, Turn{}), nil); err == nil {
			t.Fatalf("got %q", got)
		}
	})
}

func TestTemplateFails(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{`${{ event.payload.nope }}`, `event.payload has no such field: "nope"`},
		{`a${{ input.nope.x }}`, `input has no such field: "nope"`},
		{`${{ 1.0 / 0.0 }}`, "no form outside"},
		{`a${{ [0.0 / 0.0] }}`, "no form outside"},
		{`${{ {1: 2, "1": 3} }}`, "two keys"},
		{`${{ {1.5: 2} }}`, "a map key is double"},
		{`${{ lists.range(1001).all(a, lists.range(1001).all(b, true)) }}`, "too expensive"},
	} {
		t.Run(tt.src, func(t *testing.T) {
			tm, err := CompileTemplate(tt.src, Action)
			if err == nil {
				var got any
				if got, err = tm.Render(actionVars(`{}`), nil); err == nil {
					t.Fatalf("got %v", got)
				}
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %q, want %q in it", err, tt.want)
			}
		})
	}
}

func TestTemplateCompileErrorsSayWhere(t *testing.T) {
	for _, tt := range []struct {
		src          string
		offset       int
		line, column int
		want         string
	}{
		{`ab ${{ event.payload`, 3, 1, 4, "without its }}"},
		{"a\nü ${{ 'x }}", 9, 2, 7, "a string in this expression has no end"},
		{`${{ (1 }}`, 7, 1, 8, "Syntax error"},
		{`${{ 1 }} ${{ ) }}`, 13, 1, 14, "Syntax error"},
		{`x ${{ }}`, 5, 1, 6, "the expression is empty"},
		{"x\n${{ event.paylod }}", 11, 2, 10, "did you mean 'event.payload'?"},
		{`${{ request.body }}`, 4, 1, 5, "undeclared reference to 'request'"},
		{`${{ secrets }}`, 4, 1, 5, "use a secret by its name"},
		{`${{ secrets[event.id] }}`, 4, 1, 5, "use a secret by its name"},
		{`${{ has(secrets.x) }}`, 8, 1, 9, "use a secret by its name"},
		{`${{ secrets.?x }}`, 4, 1, 5, "use a secret by its name"},
		{`${{ "x" in secrets }}`, 11, 1, 12, "use a secret by its name"},
		{`${{ secrets.map(k, k) }}`, 4, 1, 5, "use a secret by its name"},
		{`${{ [1].map(secrets, 2) }}`, 11, 1, 12, "the name secrets is taken"},
	} {
		t.Run(tt.src, func(t *testing.T) {
			_, err := CompileTemplate(tt.src, Action)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Msg, tt.want) {
				t.Fatalf("got %v, want %q in it", err, tt.want)
			}
			if e.Offset != tt.offset || e.Line != tt.line || e.Column != tt.column {
				t.Fatalf("got offset %d, line %d, column %d: %s", e.Offset, e.Line, e.Column, e.Msg)
			}
		})
	}
	t.Run("secrets do not reach a trigger's input", func(t *testing.T) {
		if _, err := CompileTemplate(`${{ secrets.x }}`, Decision); err == nil {
			t.Fatal("no error")
		}
	})
}

func TestSecrets(t *testing.T) {
	const value = "hunter2-very-secret"
	lookup := func(name string) (string, error) {
		if name == "missing" {
			return "", triggerd.ErrNotFound
		}
		return value, nil
	}
	t.Run("names are found at compile time", func(t *testing.T) {
		tm := mustTemplate(t, `${{ secrets.b }} ${{ secrets["a-1"] + secrets.b }} ${{ [1].map(x, secrets.c)[0] }}`, Action)
		if got := tm.Secrets(); !reflect.DeepEqual(got, []string{"a-1", "b", "c"}) {
			t.Fatalf("got %v", got)
		}
		if got := mustTemplate(t, `${{ event.id }}`, Action).Secrets(); len(got) != 0 {
			t.Fatalf("got %v", got)
		}
	})
	t.Run("values are put in", func(t *testing.T) {
		got, err := mustTemplate(t, `Bearer ${{ secrets.b }}${{ secrets["a"].size() > 3 ? "!" : "" }}`, Action).Text(actionVars("{}"), lookup)
		if err != nil || got != "Bearer "+value+"!" {
			t.Fatalf("got %q, %v", got, err)
		}
	})
	t.Run("one that is not reached is not looked up", func(t *testing.T) {
		got, err := mustTemplate(t, `${{ input.n == 7 ? "x" : secrets.missing }}`, Action).Text(actionVars("{}"), lookup)
		if err != nil || got != "x" {
			t.Fatalf("got %q, %v", got, err)
		}
	})
	t.Run("an error of the lookup comes back", func(t *testing.T) {
		_, err := mustTemplate(t, `${{ secrets.missing }}`, Action).Text(actionVars("{}"), lookup)
		if !errors.Is(err, triggerd.ErrNotFound) || !strings.Contains(err.Error(), `"missing"`) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("without a lookup", func(t *testing.T) {
		if _, err := mustTemplate(t, `${{ secrets.a }}`, Action).Text(actionVars("{}"), nil); err == nil {
			t.Fatal("no error")
		}
	})
	for _, src := range []string{
		`${{ int(secrets.a) }}`, `${{ timestamp(secrets.a) }}`, `${{ {"x": 1}[secrets.a] }}`, `${{ {"x": 1}[base64.encode(bytes(secrets.a))] }}`,
		`${{ event.payload[secrets.a] }}`, `${{ "x".matches("(" + secrets.a) }}`, `${{ {1.5: secrets.a} }}`, `${{ secrets.a.nope }}`, `${{ dyn(secrets.a).nope }}`,
	} {
		t.Run("an error does not quote one: "+src, func(t *testing.T) {
			tm, err := CompileTemplate(src, Action)
			if err == nil {
				var got any
				if got, err = tm.Render(actionVars(`{"a":1}`), lookup); err == nil {
					t.Fatalf("no error, got %v", got)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "aHVudGVy") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestStatic(t *testing.T) {
	for _, tt := range []struct {
		src, prefix string
		static      bool
	}{
		{"", "", true},
		{"https://a/b", "https://a/b", true},
		{"$${{x", "${{x", true},
		{"https://a/${{ event.id }}", "https://a/", false},
		{"${{ event.id }}/a", "", false},
		{"${{ 'x' }}", "", false},
	} {
		t.Run(tt.src, func(t *testing.T) {
			tm := mustTemplate(t, tt.src, Action)
			if tm.Static() != tt.static || tm.StaticPrefix() != tt.prefix || tm.Source() != tt.src {
				t.Fatalf("got %v %q %q", tm.Static(), tm.StaticPrefix(), tm.Source())
			}
		})
	}
	t.Run("costs nothing", func(t *testing.T) {
		tm, v := mustTemplate(t, "text", Action), actionVars("{}")
		var out any
		if n := testing.AllocsPerRun(100, func() { out, _ = tm.Render(v, nil) }); n != 0 || out != "text" {
			t.Fatalf("%v allocations, %v", n, out)
		}
	})
}

// FuzzCompileTemplate: whatever compiles also runs, without a panic, and its value can be stored as JSON and read again.
func FuzzCompileTemplate(f *testing.F) {
	for _, s := range []string{
		"", "text", "$${{", "${{ event }}", "${{ event.payload.a.b }}x", "${{ {'a': {'b': 1}}}}", "${{ '}}' }}", "${{ r'\\' }}", "${{ \"\"\"}}\"\"\" }}",
		"${{ // }}\n1 }}", "${{ secrets.a }}", "${{ [1,2].map(x, x + input.n) }}", "${{ event.?cursor.orValue('') }}", "${{ 1.0/0.0 }}", "${{ b'\\xff' }}", "${{ ((( }}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		tm, err := CompileTemplate(src, Action)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(src) || e.Line < 1 || e.Column < 1 || e.Msg == "" {
				t.Fatalf("error %#v has no place", err)
			}
			return
		}
		v := actionVars(`{"a":{"b":[1,"x",null]}}`)
		value, err := tm.Render(v, func(string) (string, error) { return "s", nil })
		if err != nil {
			return
		}
		b, err := JSON(value)
		if err != nil || !json.Valid(b) {
			t.Fatalf("rendered %#v has no JSON: %s, %v", value, b, err)
		}
		if tm.Static() && value != tm.StaticPrefix() {
			t.Fatalf("static, but rendered %v", value)
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	ev := event(`{"number":1234,"action":"opened","user":{"login":"octocat","bot":false},"text":"` + strings.Repeat("x", 900) + `"}`)
	p, err := CompileBool(`event.payload.action == "opened" && !event.payload.user.bot`, Decision)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decoded", func(b *testing.B) {
		v := NewVars(ev, "")
		b.ReportAllocs()
		for b.Loop() {
			if ok, err := p.Bool(v); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("with decoding", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ok, err := p.Bool(NewVars(ev, "")); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
}
