package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCell(t *testing.T) {
	cases := map[string]string{
		"plain":           "plain",
		"grüße 你好":        "grüße 你好",
		"a\nb\tc":         `a\nb\tc`,
		"\x1b]0;title\a":  `\x1b]0;title\a`,
		"bad \xff byte":   `bad \xff byte`,
		"real \uFFFD one": "real \uFFFD one",
		"rtl \u202e":      `rtl \u202e`,
		"nul \x00":        `nul \x00`,
	}
	for in, want := range cases {
		if got := cell(in); got != want {
			t.Errorf("cell(%q) = %q, want %q", in, got, want)
		}
	}
	t.Run("long", func(t *testing.T) {
		got := cell(strings.Repeat("é", 1000))
		if utf8.RuneCountInString(got) != maxCell || !strings.HasSuffix(got, "é…") {
			t.Fatalf("got %q", got)
		}
		if exact := strings.Repeat("é", maxCell); cell(exact) != exact {
			t.Fatal("a value that fits is cut")
		}
	})
	t.Run("lines keep breaks and tabs", func(t *testing.T) {
		if got := cleanLines("a\n\tb\r\x1b[0m"); got != "a\n\tb\\r\\x1b[0m" {
			t.Fatalf("got %q", got)
		}
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[31m\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range cell(s) + strings.ReplaceAll(cleanLines(s), "\n", "") {
			if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
				t.Fatalf("%q keeps control character %q", s, r)
			}
		}
	})
}

func TestWhen(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("x", 3600))
	if got := (&cli{utc: true}).when(at); got != "2026-03-01 11:00:00Z" {
		t.Fatalf("utc: %s", got)
	}
	if got, want := (&cli{}).when(at), at.Local().Format("2006-01-02 15:04:05"); got != want {
		t.Fatalf("local: %s, want %s", got, want)
	}
	if got := (&cli{}).when(time.Time{}); got != "" {
		t.Fatalf("no time: %s", got)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}
