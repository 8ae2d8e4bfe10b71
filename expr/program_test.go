package expr

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/triggerd/triggerd"
)

// event is an event with a JSON payload.
func event(payload string) *triggerd.Event {
	return &triggerd.Event{
		Connection: "shop", ID: "e1", Type: "order.created",
		Time:     time.Date(2026, 3, 1, 9, 0, 0, 0, time.FixedZone("CET", 3600)),
		Received: time.Date(2026, 3, 1, 8, 0, 1, 0, time.UTC),
		Headers:  map[string]string{"x-kind": "new"}, ContentType: "application/json", Payload: []byte(payload),
	}
}

func mustBool(t *testing.T, src string, s Scope) *Program {
	t.Helper()
	p, err := CompileBool(src, s)
	if err != nil {
		t.Fatalf("compile %s: %v", src, err)
	}
	return p
}

func TestBool(t *testing.T) {
	const payload = `{"n":9007199254740993,"u":18446744073709551615,"big":18446744073709551616,"f":1.5,"whole":3.0,
		"s":"x","l":[1,2,{"a":1}],"o":{"z":1,"m":{"q":null},"a":2},"nested":"{\"id\":9007199254740993}"}`
	for _, src := range []string{
		`event.id == "e1" && event.type == "order.created" && event.connection == "shop"`,
		`event.payload.n == 9007199254740993 && event.payload.n != 9007199254740992`,
		`event.payload.u == 18446744073709551615u && event.payload.u > event.payload.n`,
		`event.payload.big == "18446744073709551616"`,
		`event.payload.whole == 3 && 3 == event.payload.whole && event.payload.f > 1`,
		`event.payload.s < "y" && event.payload.l.size() == 3 && event.payload.l[2].a == 1`,
		`event.payload.?nope.?deeper.orValue(true)`,
		`!has(event.payload.nope) && has(event.payload.o.m) && event.payload.o.m.q == null`,
		`event.headers["x-kind"] == "new" && !("x-other" in event.headers)`,
		`event.headers[?"x-other"].orValue("") == ""`,
		`event.cursor == null && !has(event.cursor) && has(event.payload)`,
		`event.attempt == 1`,
		`now == event.received && now > event.time && event.time.getHours() == 8`,
		`event.time == timestamp("2026-03-01T08:00:00Z")`,
		`dyn(event).payload.s == "x" && dyn(event)["id"] == "e1" && !has(dyn(event).nope)`,
		`type(event) == triggerd.Event && event == event`,
		`event.payload.s.upperAscii() == "X" && ["b","a"].sort() == ["a","b"] && math.greatest(1, 2) == 2`,
		`sets.contains([1, 2, 3], [2]) && base64.encode(b"hi") == "aGk="`,
		`json.parse(event.payload.nested).id.orValue(0) == 9007199254740993`,
		`json.encode(event.payload.o) == '{"a":2,"m":{"q":null},"z":1}' && !json.parse("{").hasValue()`,
		`json.encode(event).startsWith('{"attempt":1,')`,
		`optional.ofNonZeroValue({}) == optional.none()`,
		// Maps are walked in the order of their keys, whatever they come from.
		`event.payload.o.map(k, k) == ["a", "m", "z"]`,
		`{"z": 1, "m": 2, "a": 3}.map(k, k) == ["a", "m", "z"]`,
		`{3: 1, 1: 1, 2: 1}.map(k, k) == [1, 2, 3]`,
		`event.payload.o == {"a": 2, "m": {"q": null}, "z": 1} && {"a": 2, "m": {"q": null}, "z": 1} == event.payload.o`,
	} {
		t.Run(src, func(t *testing.T) {
			p := mustBool(t, src, Decision)
			for range 3 {
				if ok, err := p.Bool(NewVars(event(payload), "")); err != nil || !ok {
					t.Fatalf("got %v, %v", ok, err)
				}
			}
		})
	}
}

func TestBoolFailsAtRunTime(t *testing.T) {
	const payload = `{"n":1,"s":"x","l":[1],"o":{}}`
	for _, tt := range []struct{ src, want string }{
		{`event.payload.nope == 1`, `event.payload has no such field: "nope"`},
		{`event.payload.o.name == 1`, `event.payload.o has no such field: "name"`},
		{`event.payload.s.name == 1`, `event.payload.s is string, there is no such field: "name"`},
		{`event.payload["a b"] == 1`, `event.payload has no such field: "a b"`},
		{`event.payload.l[3] == 1`, `event.payload.l has 1 entries, there is no [3]`},
		{`event.payload.n[0] == 1`, `event.payload.n is int, there is no [0]`},
		{`event.headers["x-other"] == ""`, `event.headers has no such key: "x-other"`},
		{`event.headers["X-Kind"] == ""`, `event.headers has no such key: "X-Kind" (names are in lower case)`},
		{`event.payload.s > 1`, `no such overload (event.payload.s is string)`},
		{`event.payload.n + event.payload.s == 2`, `event.payload.n is int, event.payload.s is string`},
		{`event.payload.l.all(e, e.x == 1)`, `no such key: x`},
		{`dyn(event).nope == 1`, `no such key: nope`},
		{`event.payload.s`, `the result is string, need bool`},
		{`event.payload.?s`, `end it with .orValue(false)`},
		{`event.payload.o.?x.or(event.payload.?s).value()`, `the result is string, need bool`},
		{`1 / (event.payload.n - 1) == 0`, `division by zero`},
		{`"x" in event.payload.n`, `no such overload (event.payload.n is int)`},
		{`event.payload.s.matches("(")`, `error parsing regexp`},
		{`input.x == 1`, `undeclared reference to 'input'`},
	} {
		t.Run(tt.src, func(t *testing.T) {
			p, err := CompileBool(tt.src, Decision)
			if err == nil {
				var ok bool
				if ok, err = p.Bool(NewVars(event(payload), "")); err == nil {
					t.Fatalf("no error, got %v", ok)
				}
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %q, want %q in it", err, tt.want)
			}
		})
	}
	t.Run("the names of another scope are missing, not a panic", func(t *testing.T) {
		p := mustBool(t, `request.path == "/"`, Request)
		if _, err := p.Bool(NewVars(event("{}"), "")); err == nil {
			t.Fatal("no error")
		}
	})
}

func TestCompileErrorsSayWhere(t *testing.T) {
	for _, tt := range []struct {
		src          string
		scope        Scope
		line, column int
		offset       int
		want         string
	}{
		{"", Decision, 1, 1, 0, "the expression is empty"},
		{" \n\t", Decision, 1, 1, 0, "the expression is empty"},
		{`event.paylod.x == 1`, Decision, 1, 6, 5, "undefined field 'paylod': did you mean 'event.payload'?"},
		{`event.foobarbaz == 1`, Decision, 1, 6, 5, "undefined field 'foobarbaz': event has payload, type, headers"},
		{`event.?tpye == optional.none()`, Decision, 1, 6, 5, "did you mean 'event.type'?"},
		{`evnt.type == "a"`, Decision, 1, 1, 0, "did you mean 'event'?"},
		{`payload.x == 1`, Decision, 1, 1, 0, "did you mean 'event.payload'?"},
		{"event.payload.x == 1 &&\n  event.tpe == 'ü'", Decision, 2, 8, 31, "did you mean 'event.type'?"},
		{`'ü' == event.tpe`, Decision, 1, 13, 13, "did you mean 'event.type'?"},
		{`event.payload.s.startswith("x")`, Decision, 1, 27, 26, "did you mean 'startsWith'?"},
		{`1 +`, Decision, 1, 4, 3, "Syntax error"},
		{`event.id + 1 == "x"`, Decision, 1, 10, 9, "no matching overload"},
		{`event.id`, Decision, 1, 1, 0, "the result is string, need bool"},
		{`event.payload.?x`, Decision, 1, 1, 0, "end it with .orValue(false)"},
		{`triggerd.Event{id: "x"} == event`, Decision, 1, 15, 14, "objects cannot be made here"},
		{`secrets.x == "a"`, Decision, 1, 1, 0, "never to decide"},
		{`secrets.x == "a"`, Request, 1, 1, 0, "never to decide"},
		{`secrets.x == "a"`, Action, 1, 1, 0, "never to decide"},
		{`event.id == "x"`, Request, 1, 1, 0, "undeclared reference to 'event'"},
		{"true \xff", Decision, 1, 1, 0, ""},
		{strings.Repeat("(", 1000), Decision, 1, 1, 0, ""},
	} {
		t.Run(tt.src, func(t *testing.T) {
			_, err := CompileBool(tt.src, tt.scope)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if !strings.Contains(e.Msg, tt.want) {
				t.Fatalf("got %q, want %q in it", e.Msg, tt.want)
			}
			if tt.want != "" && (e.Line != tt.line || e.Column != tt.column || e.Offset != tt.offset) {
				t.Fatalf("got line %d, column %d, offset %d", e.Line, e.Column, e.Offset)
			}
		})
	}
	t.Run("advice for Go programs is left out", func(t *testing.T) {
		_, err := CompileBool(`cel.bind(x, 1, x == 1) || ip("::1") == 1`, Decision)
		if err == nil || strings.Contains(err.Error(), "ext.") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("a scope that does not exist", func(t *testing.T) {
		if _, err := CompileBool("true", Scope(9)); err == nil {
			t.Fatal("no error")
		}
	})
}

func TestKey(t *testing.T) {
	const payload = `{"i":-5,"u":18446744073709551615,"big":18446744073709551616,"f":0.1,"whole":1000000.0,"huge":1e300,"zero":-0.0,
		"s":"a/ü","b":true,"nul":null,"zeroByte":"a\u0000b","l":[],"o":{}}`
	for _, tt := range []struct{ src, want string }{
		{`event.payload.s`, "a/ü"},
		{`event.payload.i`, "-5"},
		{`event.payload.u`, "18446744073709551615"},
		{`event.payload.big`, "18446744073709551616"},
		{`event.payload.f`, "0.1"},
		{`event.payload.whole`, "1000000"},
		{`event.payload.huge`, "1e+300"},
		{`event.payload.zero`, "0"},
		{`event.payload.b`, "true"},
		{`event.payload.nul`, ""},
		{`null`, ""},
		{`event.cursor`, ""},
		{`event.payload.?nope`, ""},
		{`event.payload.?nope.?x`, ""},
		{`optional.none()`, ""},
		{`event.payload.?s`, "a/ü"},
		{`event.headers[?"x-kind"]`, "new"},
		{`event.time`, "2026-03-01T08:00:00Z"},
		{`event.id + ":" + string(event.payload.i)`, "e1:-5"},
	} {
		t.Run(tt.src, func(t *testing.T) {
			p, err := CompileKey(tt.src, Decision)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Key(NewVars(event(payload), "")); err != nil || got != tt.want {
				t.Fatalf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	for _, tt := range []struct{ src, want string }{
		{`event.payload.l`, "the result is list"},
		{`event.payload.o`, "the result is map"},
		{`[event.id]`, "the result is list(string), need string"},
		{`{"a": event.id}`, "the result is map(string, string), need string"},
		{`b"x"`, "the result is bytes"},
		{`dyn(b"x")`, "the result is bytes"},
		{`duration("1h")`, "the result is duration"},
		{`dyn(duration("1h"))`, "the result is google.protobuf.Duration"},
		{`event`, "the result is triggerd.Event"},
		{`dyn(event)`, "the result is triggerd.Event"},
		{`event.payload.zeroByte`, "NUL"},
		{`0.0 / 0.0`, "names nothing"},
		{`event.payload.nope`, `event.payload has no such field: "nope"`},
		{`event.payload.?l`, "the result is list"},
		{`lists.range(1025).map(i, "x").join()`, "the key has 1025 bytes, the limit is 1024"},
	} {
		t.Run(tt.src, func(t *testing.T) {
			p, err := CompileKey(tt.src, Decision)
			if err == nil {
				var got string
				if got, err = p.Key(NewVars(event(payload), "")); err == nil {
					t.Fatalf("no error, got %q", got)
				}
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %q, want %q in it", err, tt.want)
			}
		})
	}
	t.Run("a header that is not UTF-8", func(t *testing.T) {
		ev := event("{}")
		ev.Headers["x-kind"] = "\xff"
		p, err := CompileKey(`event.headers["x-kind"]`, Decision)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := p.Key(NewVars(ev, "")); err == nil {
			t.Fatalf("got %q", key)
		}
	})
}

func TestRequestScope(t *testing.T) {
	vars := func(contentType, body string) *Vars {
		return NewRequestVars(RequestData{
			Headers: map[string]string{"x-id": "7"}, Query: map[string]string{"q": "1"}, Path: "/hooks/a", Method: "POST",
			ContentType: contentType, Body: []byte(body),
		}, time.Unix(0, 0))
	}
	for _, tt := range []struct{ src, contentType, body string }{
		{`request.headers["x-id"] == "7" && request.query.q == "1" && request.path == "/hooks/a" && request.method == "POST"`, "", ""},
		{`request.body.id == 9007199254740993`, "application/json", `{"id":9007199254740993}`},
		{`request.body == "text"`, "text/plain", "text"},
		{`request.body == b"\xff"`, "image/png", "\xff"},
		{`!has(request.body) && request.body == null`, "", ""},
		{`now == timestamp(0)`, "", ""},
	} {
		t.Run(tt.src, func(t *testing.T) {
			if ok, err := mustBool(t, tt.src, Request).Bool(vars(tt.contentType, tt.body)); err != nil || !ok {
				t.Fatalf("got %v, %v", ok, err)
			}
		})
	}
}

func TestCursor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cursor triggerd.Cursor
		want   string
	}{
		{"none", nil, `event.cursor == null && !has(event.cursor)`},
		{"empty", triggerd.Cursor{}, `event.cursor == "" && has(event.cursor)`},
		{"text", triggerd.Cursor("p7"), `event.cursor == "p7"`},
		{"bytes", triggerd.Cursor{0xff}, `event.cursor == "/w=="`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev := event("{}")
			ev.Cursor = tt.cursor
			if ok, err := mustBool(t, tt.want, Decision).Bool(NewVars(ev, "")); err != nil || !ok {
				t.Fatalf("got %v, %v", ok, err)
			}
		})
	}
}

func TestPayloadIsDecodedOnceAndOnlyWhenUsed(t *testing.T) {
	v := NewVars(event(`{"n":1}`), "")
	if ok, err := mustBool(t, `event.type == "order.created"`, Decision).Bool(v); err != nil || !ok {
		t.Fatalf("got %v, %v", ok, err)
	}
	if v.event.decoded {
		t.Fatal("decoded although nothing asked for it")
	}
	p := mustBool(t, `event.payload.n == 1`, Decision)
	if ok, err := p.Bool(v); err != nil || !ok {
		t.Fatalf("got %v, %v", ok, err)
	}
	v.event.ev.Payload = []byte("broken") // a second decoding would see this
	if ok, err := p.Bool(v.ForAction(nil, Turn{})); err == nil && !ok {
		t.Fatal("decoded a second time")
	}
}

func TestProgramsAreSafeForConcurrentUse(t *testing.T) {
	programs := []*Program{
		mustBool(t, `event.payload.n == 1 && event.payload.o.map(k, k) == ["a", "b"]`, Decision),
		mustBool(t, `"x" in event.payload.n || event.payload.n > "a"`, Decision), // fails with errors that CEL shares
		mustBool(t, `event.payload.s.matches("^x+$")`, Decision),
		mustBool(t, `event.payload.nope`, Decision),
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				v := NewVars(event(`{"n":1,"s":"xx","o":{"b":1,"a":2}}`), "")
				for i, p := range programs {
					ok, err := p.Bool(v)
					if want := i == 0 || i == 2; ok != want || (err == nil) != want {
						t.Errorf("%s: got %v, %v", p.Source(), ok, err)
					}
				}
			}
		})
	}
	wg.Wait()
}
