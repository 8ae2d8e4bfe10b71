package expr

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDecodePayload(t *testing.T) {
	const js = "application/json"
	for _, tt := range []struct {
		name, contentType, in string
		want                  any
	}{
		{"nothing is nil", js, "", nil},
		{"an object", js, `{"a":[1,"x",null,true]}`, map[string]any{"a": []any{int64(1), "x", nil, true}}},
		{"an integer over 2^53", js, "9007199254740993", int64(9007199254740993)},
		{"the largest int64", js, "9223372036854775807", int64(math.MaxInt64)},
		{"the smallest int64", js, "-9223372036854775808", int64(math.MinInt64)},
		{"one more is a uint64", js, "9223372036854775808", uint64(1) << 63},
		{"the largest uint64", js, "18446744073709551615", uint64(math.MaxUint64)},
		{"one more is its digits", js, "18446744073709551616", "18446744073709551616"},
		{"one less than int64 is its digits", js, "-9223372036854775809", "-9223372036854775809"},
		{"a fraction is a double", js, "1.5", 1.5},
		{"a whole number with a fraction is a double", js, "1.0", 1.0},
		{"an exponent makes a double", js, "1e3", 1000.0},
		{"too large for a double stays as written", js, "1e400", "1e400"},
		{"too small for a double is zero", js, "1e-400", 0.0},
		{"minus zero is the int", js, "-0", int64(0)},
		{"minus zero with a fraction is the double", js, "-0.0", 0.0},
		{"the last of two names counts", js, `{"a":1,"a":2}`, map[string]any{"a": int64(2)}},
		{"a byte order mark is passed over", js, "\ufeff[1]", []any{int64(1)}},
		{"parameters of the content type do not matter", "Application/JSON; charset=utf-8", "[1]", []any{int64(1)}},
		{"+json", "application/cloudevents+json", "[1]", []any{int64(1)}},
		{"no content type and JSON", "", `{"a":1}`, map[string]any{"a": int64(1)}},
		{"no content type and text", "", "hello", "hello"},
		{"no content type and bytes", "", "\xff\xfe", []byte("\xff\xfe")},
		{"broken JSON is text", js, `{"a":`, `{"a":`},
		{"text after JSON is text", js, `{} {}`, `{} {}`},
		{"JSON that is not UTF-8 is bytes", js, "\"\xff\"", []byte("\"\xff\"")},
		{"nesting beyond the decoder is text", js, strings.Repeat("[", 20000), strings.Repeat("[", 20000)},
		{"text that looks like JSON is text", "text/plain", "[1]", "[1]"},
		{"XML is text", "application/xml", "<a/>", "<a/>"},
		{"text that is not UTF-8 is bytes", "text/plain; charset=latin1", "\xe9", []byte("\xe9")},
		{"any other type is bytes", "application/octet-stream", "[1]", []byte("[1]")},
		{"NUL in text", "text/plain", "a\x00b", "a\x00b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := DecodePayload(tt.contentType, []byte(tt.in)); !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %T %v, want %T %v", got, got, tt.want, tt.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   any
		want string
	}{
		{"names are sorted", map[string]any{"b": int64(1), "a": nil}, `{"a":null,"b":1}`},
		{"integers are exact", []any{int64(9007199254740993), uint64(math.MaxUint64)}, "[9007199254740993,18446744073709551615]"},
		{"HTML is left alone", "<a href='x'>&", `"<a href='x'>&"`},
		{"bytes are base64", []byte{0xff, 0}, `"/wA="`},
		{"times keep their fraction", time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC), `"2026-01-02T03:04:05.0000006Z"`},
		{"nil is null", nil, "null"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := JSON(tt.in)
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
	t.Run("NaN is an error", func(t *testing.T) {
		if got, err := JSON([]any{math.NaN()}); err == nil {
			t.Fatalf("got %s", got)
		}
	})
}

// FuzzDecodePayload: a payload that was decoded and written as JSON says the same when it is read again.
func FuzzDecodePayload(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":[1,2.5,"x",null]}`, "18446744073709551616", "1e400", "-0", "-0.0", "-1e-400", "\xff", "[", "\"\\ud800\""} {
		f.Add("application/json", []byte(s))
		f.Add("", []byte(s))
		f.Add("text/plain", []byte(s))
	}
	f.Fuzz(func(t *testing.T, contentType string, b []byte) {
		v := DecodePayload(contentType, b)
		once, err := JSON(v)
		if err != nil {
			t.Fatalf("JSON of %T: %v", v, err)
		}
		again, err := JSON(DecodePayload("application/json", once))
		if err != nil {
			t.Fatalf("JSON of the JSON %s: %v", once, err)
		}
		if string(once) != string(again) { // 1.0 is written 1, so its type may change; its text may not
			t.Fatalf("first %s, then %s", once, again)
		}
	})
}
