package configs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func fixed(values ...string) func() []string { return func() []string { return values } }

func TestRedactor(t *testing.T) {
	const secret = `s3cr&t/+"va lué>`
	r := NewRedactor(fixed(secret, "short", "abcdefgh", "efghijkl"))
	jsonText, _ := json.Marshal(secret)
	for name, text := range map[string]string{
		"plain":             secret,
		"query-encoded":     url.QueryEscape(secret),
		"path-encoded":      url.PathEscape(secret),
		"lower-case hex":    strings.ToLower(url.QueryEscape(secret)),
		"JSON":              string(jsonText[1 : len(jsonText)-1]),
		"base64":            base64.StdEncoding.EncodeToString([]byte(secret)),
		"raw base64":        base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"URL base64":        base64.URLEncoding.EncodeToString([]byte(secret)),
		"raw URL base64":    base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"overlapping pair":  "abcdefghijkl",
		"twice in a row":    "abcdefghabcdefgh",
		"overlaps by shift": "abcdefghefghijkl",
	} {
		if got := strings.ReplaceAll(r.String("<"+text+">"), redacted, ""); got != "<>" {
			t.Errorf("%s: %q of %q is left", name, got, text)
		}
	}
	t.Run("inside a longer base64, wherever it starts", func(t *testing.T) {
		for _, before := range []string{"user:", "user1:", "user12:"} {
			text := base64.StdEncoding.EncodeToString([]byte(before + secret + "; and more"))
			got := r.String(text)
			if !strings.Contains(got, redacted) {
				t.Errorf("%q is not touched", text)
			}
			for i := 0; i+8 <= len(got); i++ { // no 8 characters of what is left decode to a part of the secret
				if raw, err := base64.RawStdEncoding.DecodeString(got[i : i+8]); err == nil && strings.Contains(secret, string(raw)) {
					t.Errorf("%q still holds %q", got, raw)
				}
			}
		}
	})
	t.Run("short values mask no ordinary words", func(t *testing.T) {
		if got := r.String("a short word"); got != "a short word" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("bytes without a secret are returned as they are", func(t *testing.T) {
		in := []byte("nothing here")
		if got := r.Bytes(in); &got[0] != &in[0] {
			t.Error("a copy was made")
		}
	})
	t.Run("new values count at once", func(t *testing.T) {
		values := []string{"first-value"}
		r := NewRedactor(func() []string { return values })
		if got := r.String("first-value second-value"); got != "[redacted] second-value" {
			t.Errorf("got %q", got)
		}
		values = []string{"second-value"}
		if got := r.String("first-value second-value"); got != "first-value [redacted]" {
			t.Errorf("got %q", got)
		}
	})
}

func TestRedactWriter(t *testing.T) {
	t.Run("finds a secret across writes, one byte at a time", func(t *testing.T) {
		var out bytes.Buffer
		w := NewRedactor(fixed("hunter2hunter2")).Writer(&out)
		for _, b := range []byte("a hunter2hunter2 b hunter2hunter!") {
			if n, err := w.Write([]byte{b}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != "a [redacted] b hunter2hunter!" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("passes a line on at once", func(t *testing.T) {
		var out bytes.Buffer
		w := NewRedactor(fixed("hunter2hunter2")).Writer(&out)
		if _, err := w.Write([]byte("{\"msg\":\"hunter2hunter\"}\n")); err != nil {
			t.Fatal(err)
		}
		if out.Len() != 24 {
			t.Errorf("only %q was passed on", out.String())
		}
	})
	t.Run("an end that is held back comes with the flush", func(t *testing.T) {
		var out bytes.Buffer
		w := NewRedactor(fixed("hunter2hunter2")).Writer(&out)
		_, _ = w.Write([]byte("x hunter2"))
		if out.String() != "x " {
			t.Errorf("passed on %q", out.String())
		}
		_ = w.Flush()
		if out.String() != "x hunter2" {
			t.Errorf("after the flush %q", out.String())
		}
	})
	t.Run("a failure below is returned", func(t *testing.T) {
		broken := errors.New("broken")
		w := NewRedactor(fixed()).Writer(failing{broken})
		if _, err := w.Write([]byte("x")); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// However a text is split into writes, the result is that of redacting it whole.
func TestRedactWriterAgreesWithString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 8, 12, -1)
		values := rapid.SliceOfN(word, 1, 3).Draw(t, "values")
		parts := rapid.SliceOf(rapid.OneOf(rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1), rapid.SampledFrom(values))).Draw(t, "parts")
		r := NewRedactor(fixed(values...))
		var out bytes.Buffer
		w := r.Writer(&out)
		for _, p := range parts {
			if _, err := w.Write([]byte(p)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if want := r.String(strings.Join(parts, "")); out.String() != want {
			t.Fatalf("got %q, want %q", out.String(), want)
		}
		for _, v := range values {
			if strings.Contains(out.String(), v) {
				t.Fatalf("%q holds %q", out.String(), v)
			}
		}
	})
}
