package triggers

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatchType(t *testing.T) {
	for _, tt := range []struct {
		glob, typ string
		want      bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.b.c", false},
		{"a.b", "a", false},
		{"*", "a", true},
		{"*", "", true},
		{"*", "a.b", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"a.*.c", "a.b.c", true},
		{"*.c", "a.c", true},
		{"or*.cre*ed", "order.created", true},
		{"or*.cre*ed", "order.cremated", true},
		{"or*", "order.created", false},
		{"a*b*c", "axxbxbxc", true},
		{"a*b*c", "axxbxbx", false},
		{"**", "a", true},
		{"**", "a.b.c", true},
		{"a.**", "a", true},
		{"a.**", "a.b.c", true},
		{"a.**", "ab", false},
		{"**.c", "c", true},
		{"**.c", "a.b.c", true},
		{"**.c", "a.c.b", false},
		{"a.**.d", "a.d", true},
		{"a.**.d", "a.b.c.d", true},
		{"a.**.d", "a.b.d.c", false},
		{"**.b.**.b", "b.b", true},
		{"**.b.**.b", "b", false},
		{"**.x.*.y.**", "a.x.x.y.b", true},
		{"A", "a", false},
		{"a.?", "a.b", false},
		{"a..b", "a..b", true},
		{"a.*.b", "a..b", true},
	} {
		if got := MatchType(tt.glob, tt.typ); got != tt.want {
			t.Errorf("MatchType(%q, %q) = %v", tt.glob, tt.typ, got)
		}
	}
	t.Run("time does not explode", func(t *testing.T) {
		glob := strings.Repeat("**.a*a*a.", 20) + "b"
		if MatchType(glob, strings.TrimSuffix(strings.Repeat("aaaaaaaaa.", 25), ".")) {
			t.Fatal("matched")
		}
	})
}

// TestMatchTypeAgreesWithARegexp compares with the same glob written as a regular expression.
func TestMatchTypeAgreesWithARegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.SampledFrom([]string{"**", "**", "*", "a", "b", "a*", "*b", "a*b*", "ab"})
		glob := strings.Join(rapid.SliceOfN(token, 1, 6).Draw(t, "glob"), ".")
		typ := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "aab", "abb", ""}), 1, 6).Draw(t, "type"), ".")
		// A dot before each token makes `**` simply any number of ".token".
		var pattern strings.Builder
		for _, g := range strings.Split(glob, ".") {
			if g == "**" {
				pattern.WriteString(`(\.[^.]*)*`)
				continue
			}
			pattern.WriteString(`\.` + strings.ReplaceAll(g, "*", "[^.]*"))
		}
		if want := regexp.MustCompile("^" + pattern.String() + "$").MatchString("." + typ); MatchType(glob, typ) != want {
			t.Fatalf("MatchType(%q, %q) = %v", glob, typ, !want)
		}
	})
}

func TestValidGlob(t *testing.T) {
	for _, glob := range []string{"a", "a.b", "*", "**", "a.*", "**.a", "or*er.x", "http.2xx", "a-b_c/d"} {
		if err := ValidGlob(glob); err != nil {
			t.Errorf("%q: %v", glob, err)
		}
	}
	for glob, want := range map[string]string{
		"": "empty", "a..b": "empty token", ".a": "empty token", "a.": "empty token", "a**": "stand alone", "***": "stand alone",
		" a": "spaces", "a ": "spaces", "a\nb": "control", "\xff": "UTF-8", strings.Repeat("a", 257): "257 bytes",
	} {
		if err := ValidGlob(glob); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", glob, err, want)
		}
	}
}
