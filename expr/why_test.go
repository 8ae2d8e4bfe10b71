package expr

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhyFalse(t *testing.T) {
	const payload = `{"n":5,"s":"x","f":1.5,"big":18446744073709551616,"nul":null,"b":false,"l":[1,{"a":2}],"o":{"z":1,"a":"&"},"multi":"a\nb"}`
	for _, tt := range []struct{ src, want string }{
		{`event.payload.n > 10`, `event.payload.n > 10 is false: event.payload.n = 5 (int)`},
		{`event.payload.n == 5 && event.payload.s == "y" && event.payload.f > 2`, `event.payload.s == "y" is false: event.payload.s = "x" (string)`},
		{"event.payload.n == 5 &&\n\t(event.payload.s == \"x\" && event.payload.f > 2)", `event.payload.f > 2 is false: event.payload.f = 1.5 (double)`},
		{`(event.payload.n == 5 && event.payload.s == "&&")`, `event.payload.s == "&&" is false: event.payload.s = "x" (string)`},
		{`event.payload.n == 1 || event.payload.s == "y" && true`, `event.payload.n == 1 || event.payload.s == "y" && true is false: event.payload.n = 5 (int), event.payload.s = "x" (string)`},
		{`event.payload.n == 5 ? false && true : true`, `event.payload.n == 5 ? false && true : true is false: event.payload.n = 5 (int)`},
		{`event.payload.?author.?bot.orValue(false)`, `event.payload.?author.?bot.orValue(false) is false: event.payload has no such field: "author"`},
		{`event.payload.?s.?bot.orValue(false)`, `event.payload.?s.?bot.orValue(false) is false: event.payload.?s is string, there is no such field: "bot"`},
		{`true && has(event.payload.author)`, `has(event.payload.author) is false: event.payload has no such field: "author"`},
		{`event.payload.n == "5"`, `event.payload.n == "5" is false: event.payload.n = 5 (int), an int never equals a string`},
		{`event.payload.big == 18446744073709551615u`, `event.payload.big == 18446744073709551615u is false: event.payload.big = "18446744073709551616" (string), a string never equals a uint`},
		{`event.payload.f == 1`, `event.payload.f == 1 is false: event.payload.f = 1.5 (double)`},
		{`event.payload.s == null`, `event.payload.s == null is false: event.payload.s = "x" (string)`},
		{`event.payload.nul == 1`, `event.payload.nul == 1 is false: event.payload.nul = null, null never equals an int`},
		{`event.payload.nope == 1 && event.payload.n == 4`, `event.payload.n == 4 is false: event.payload.n = 5 (int)`},
		{`event.type == "b"`, `event.type == "b" is false: event.type = "order.created" (string)`},
		{`event.headers[?"x-kind"].orValue("") == "old"`, `event.headers[?"x-kind"].orValue("") == "old" is false: event.headers[?"x-kind"] = "new" (string)`},
		{`"x-other" in event.headers`, `"x-other" in event.headers is false: event.headers = {"x-kind":"new"} (map)`},
		{`event.payload.l[1].a == 3`, `event.payload.l[1].a == 3 is false: event.payload.l[1].a = 2 (int)`},
		{`event.payload.l.exists(event, event == 7)`, `event.payload.l.exists(event, event == 7) is false: event.payload.l = [1,{"a":2}] (list)`},
		{`event.payload.o.a == "b"`, `event.payload.o.a == "b" is false: event.payload.o.a = "&" (string)`},
		{`event.payload.multi == "b"`, `event.payload.multi == "b" is false: event.payload.multi = "a\nb" (string)`},
		{`event.payload.b`, `event.payload.b is false: event.payload.b = false (bool)`},
		{`event.received > now`, `event.received > now is false: event.received = 2026-03-01T08:00:01Z (timestamp)`},
		{`false`, `false is false`},
		{`event == null`, `event == null is false: event = triggerd.Event`},
		{"event.payload.n == 4 // && event.payload.s == 'x'\n && true", `event.payload.n == 4 // && event.payload.s == 'x' is false: event.payload.n = 5 (int)`},
	} {
		t.Run(tt.src, func(t *testing.T) {
			p := mustBool(t, tt.src, Decision)
			v := NewVars(event(payload), "")
			if ok, err := p.Bool(v); ok || err != nil {
				t.Fatalf("Bool gave %v, %v", ok, err)
			}
			if got := p.WhyFalse(v); got != tt.want {
				t.Fatalf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
	t.Run("values are cut and stay on one line", func(t *testing.T) {
		long := strings.Repeat("ü\\n", 100_000)
		v := NewVars(event(`{"s":"`+long+`","l":["`+long+`"]}`), "")
		got := mustBool(t, `event.payload.s == event.payload.l[0] + "x" || event.payload.l == []`, Decision).WhyFalse(v)
		if utf8.RuneCountInString(got) > 450 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r") {
			t.Fatalf("got %d bytes: %.300q", len(got), got)
		}
	})
	t.Run("bytes are counted, not shown", func(t *testing.T) {
		ev := event("\xff\x00")
		ev.ContentType = "image/png"
		want := `event.payload == "a" is false: event.payload = 2 bytes, bytes never equals a string`
		if got := mustBool(t, `event.payload == "a"`, Decision).WhyFalse(NewVars(ev, "")); got != want {
			t.Fatalf("got %s", got)
		}
	})
}

func TestClauses(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want []string
	}{
		{`a`, []string{"a"}},
		{`a && b`, []string{"a", "b"}},
		{`a&&(b&&c)&&d`, []string{"a", "b", "c", "d"}},
		{`((a && b))`, []string{"a", "b"}},
		{`(a) && (b)`, []string{"a", "b"}},
		{`(a || b) && c`, []string{"a || b", "c"}},
		{`a || b && c`, []string{"a || b && c"}},
		{`a ? b && c : d`, []string{"a ? b && c : d"}},
		{`a.?b && c[?0] && d`, []string{"a.?b", "c[?0]", "d"}},
		{`f(a && b) && [c && d] == {"e": f && g}`, []string{"f(a && b)", `[c && d] == {"e": f && g}`}},
		{`a == "&& \" &&" && r"\" == b`, []string{`a == "&& \" &&"`, `r"\" == b`}},
		{`a == """x" && "y""" && b`, []string{`a == """x" && "y"""`, "b"}},
		{"a // x && y\n && b", []string{"a // x && y", "b"}},
		{``, []string{""}},
		{`(`, []string{"("}},
		{`a &&`, []string{"a", ""}},
	} {
		t.Run(tt.src, func(t *testing.T) {
			if got := clauses(tt.src); strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
		})
	}
}
