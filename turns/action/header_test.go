package action

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/triggerd/triggerd"
)

func TestHeaderKey(t *testing.T) {
	tests := map[string]string{
		"o-1":       "c:t:o-1",
		"a b":       "c:t:a b",
		"a ":        "c:t:a%20",
		"100%":      "c:t:100%25",
		"a\tb\x7f":  "c:t:a%09b%7F",
		"über":      "c:t:%C3%BCber",
		"https://x": "c:t:https://x",
	}
	for id, want := range tests {
		if got := headerKey(triggerd.TurnKey{Connection: "c", Trigger: "t", EventID: id}); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

// TestHeaderKeysDiffer: two turns whose keys differ never look alike to a receiver that trims spaces, and every key fits an event id.
func TestHeaderKeysDiffer(t *testing.T) {
	ids := rapid.OneOf(rapid.StringN(1, 20, triggerd.MaxEventID), rapid.StringMatching(`[ %0-9A-F\n]{1,8}`),
		rapid.Custom(func(t *rapid.T) string { return strings.Repeat("é", 500) + rapid.StringN(1, 5, 20).Draw(t, "tail") }))
	rapid.Check(t, func(t *rapid.T) {
		a := triggerd.TurnKey{Connection: "c", Trigger: "t", EventID: ids.Draw(t, "a")}
		b := triggerd.TurnKey{Connection: "c", Trigger: "t", EventID: ids.Draw(t, "b")}
		ka, kb := headerKey(a), headerKey(b)
		if a != b && strings.TrimSpace(ka) == strings.TrimSpace(kb) {
			t.Fatalf("%q and %q are both %q", a.EventID, b.EventID, ka)
		}
		if len(ka) > triggerd.MaxEventID || headerValueFailure("x", ka) != nil {
			t.Fatalf("%q becomes %q, which is no event id", a.EventID, ka)
		}
	})
}

func TestOneLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		got := oneLine(s, 20)
		if len(got) > 20 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\u2028") {
			t.Fatalf("%q becomes %q", s, got)
		}
	})
}
