package expr

import (
	"strings"
	"testing"
)

func TestCostLimit(t *testing.T) {
	big := `{"l":[` + strings.TrimSuffix(strings.Repeat(`{"a":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},`, 4000), ",") + `]}`
	for _, src := range []string{
		`event.payload.l.all(a, event.payload.l.all(b, a.a == b.a))`,
		`event.payload.l.all(a, event.payload == event.payload)`,
		`event.payload.l.all(a, !(event.payload in event.payload.l))`,
		`event.payload.l.all(a, json.encode(event.payload) != "")`,
		`event.payload.l.all(a, json.parse("[" + event.payload.l[0].a + "]").hasValue() || event.payload.l.distinct().size() > 0)`,
		`event.payload.l.distinct().size() == 1`,
		`event.payload.l.all(a, event.payload.l.all(b, a.a + b.a != ""))`,
		`event.payload.l.all(a, !("nope" in event.payload.l))`,
		`event.payload.l.all(a, event.payload.l.map(b, b.a).sort().size() > 0)`,
		`event.payload.l.all(a, event.payload.l.reverse().size() > 0)`,
		`[event.payload].all(a, event.payload.l.all(b, dyn(event.payload.l) in [event.payload.l, event.payload.l]))`,
		`sets.equivalent(event.payload.l, event.payload.l)`,
		`lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))`,
	} {
		t.Run(src, func(t *testing.T) {
			ok, err := mustBool(t, src, Decision).Bool(NewVars(event(big), ""))
			if err == nil || !strings.Contains(err.Error(), "too expensive") {
				t.Fatalf("got %v, %v", ok, err)
			}
		})
	}
	t.Run("a call that would not come back is not begun", func(t *testing.T) {
		list := `[` + strings.TrimSuffix(strings.Repeat(`{"a":1},{"a":2},`, 20000), ",") + `]`
		text := strings.Repeat("a", 1<<18)
		payload := `{"l":` + list + `,"text":"` + text + `"}`
		for _, src := range []string{
			`event.payload.l.distinct().size() == 2`,
			`sets.contains(event.payload.l, event.payload.l)`,
			`sets.equivalent(event.payload.l, event.payload.l)`,
			`event.payload.text.replace("a", event.payload.text) == ""`,
			`event.payload.text.split("").join(event.payload.text) == ""`,
			`event.payload.text.matches(event.payload.text)`,
		} {
			if ok, err := mustBool(t, src, Decision).Bool(NewVars(event(payload), "")); err == nil || !strings.Contains(err.Error(), "too expensive") {
				t.Errorf("%s: got %v, %v", src, ok, err)
			}
		}
	})
	t.Run("small calls of those are done", func(t *testing.T) {
		src := `event.payload.l.distinct() == [1, 2] && sets.contains(event.payload.l, [1]) && "aa".replace("a", "b") == "bb" &&
			["a", "b"].join("-") == "a-b" && "aa".matches(event.payload.p) && "aa".matches("^a+$")`
		if ok, err := mustBool(t, src, Decision).Bool(NewVars(event(`{"l":[1,2,1],"p":"^a+$"}`), "")); err != nil || !ok {
			t.Fatalf("got %v, %v", ok, err)
		}
	})
	t.Run("a long chain of them is cheap", func(t *testing.T) {
		src := `event.payload.s` + strings.Repeat(`.replace("a", "b").replace("b", "a")`, 40) + ` == "aaa"`
		if ok, err := mustBool(t, src, Decision).Bool(NewVars(event(`{"s":"aaa"}`), "")); err != nil || !ok {
			t.Fatalf("got %v, %v", ok, err)
		}
	})
	t.Run("one pass over a large payload is within it", func(t *testing.T) {
		ok, err := mustBool(t, `event.payload.l.all(a, a.a.startsWith("x")) && event.payload == event.payload`, Decision).Bool(NewVars(event(big), ""))
		if err != nil || !ok {
			t.Fatalf("got %v, %v", ok, err)
		}
	})
	t.Run("a range beyond all memory is an error", func(t *testing.T) {
		if ok, err := mustBool(t, `lists.range(1000000000000).size() > 0`, Decision).Bool(NewVars(event("{}"), "")); err == nil {
			t.Fatalf("got %v", ok)
		}
	})
}

// TestEveryFunctionIsPaidFor runs functions on a long text or list, once for each entry of a list. Each comes back: with a result where
// it takes the same time for a long value as for a short one, or else because it is too expensive. One that CEL charges
// too little for would run for minutes here.
func TestEveryFunctionIsPaidFor(t *testing.T) {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 30_000), ",") + "]"
	payload := `{"s":"` + strings.Repeat("a", 1<<19) + `","sub":"` + strings.Repeat("a", 1<<17) + `b","l":` + list + `}`
	v := NewVars(event(payload), "")
	for _, body := range []string{
		`S < "b"`, `S == "b" || true`, `S != event.payload.s || true`, `[S] == [S]`, `S + "x" != ""`, `S.size() > 0`, `dyn(S).size() > 0`,
		`string(bytes(S)) != ""`, `bytes(S) == bytes(S)`, `int(S) == 1 || true`, `double(S) == 1.0 || true`, `timestamp(S) == now || true`, `duration(S) == duration("1s") || true`,
		`S.charAt(1) == "a"`, `S.substring(1, 5) != ""`, `S.indexOf("b") < 0`, `S.indexOf(event.payload.sub) < 0`, `S.lastIndexOf(event.payload.sub) < 0`,
		`S.contains("b") || true`, `S.contains(event.payload.sub) || true`, `S.startsWith("b") || true`, `S.matches("b") || true`,
		`S.matches(event.payload.sub) || true`, `S.lowerAscii() != ""`, `S.split("a").size() > 0`, `S.trim() != ""`, `S.reverse() != ""`,
		`S.replace("a", "b") != ""`, `S.replace("a", "") == ""`, `"%s".format([S]) != ""`, `strings.quote(S) != ""`, `base64.encode(bytes(S)) != ""`,
		`json.encode(S) != ""`, `!json.parse(S).hasValue()`, `{S: 1} != {}`, `S in {S: 1}`, `event.payload[S] == 1 || true`, `optional.of(S) == optional.of(S)`,
		`L.slice(0, 1000).size() > 0`, `L.size() > 0`, `L[i] == 1`, `L.flatten().size() > 0`, `L.sort().size() > 0`, `L.sortBy(x, -x).size() > 0`,
		`L.first().hasValue()`, `(L + L).size() > 0`, `L == [1] || true`, `L == L`, `L in [L]`, `!(2 in L)`, `math.greatest(L) == 1`, `L.map(x, x * 2).size() > 0`,
		`sets.contains(L, [1])`, `sets.intersects([1], L)`, `L.distinct() == [1]`, `L.reverse().size() > 0`, `lists.range(30000).size() > 0`,
	} {
		t.Run(body, func(t *testing.T) {
			src := strings.NewReplacer("S", "event.payload.s", "L", "event.payload.l").Replace(body)
			ok, err := mustBool(t, "event.payload.l.all(i, "+src+")", Decision).Bool(v)
			if !ok && (err == nil || !strings.Contains(err.Error(), "too expensive")) {
				t.Fatalf("got %v, %v", ok, err)
			}
		})
	}
}
