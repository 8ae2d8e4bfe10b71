package configs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	redacted = "[redacted]"
	// minSecret is the shortest value that is redacted, in bytes: shorter ones would mask ordinary words (P35).
	minSecret = 8
)

// Redactor replaces secret values by "[redacted]", also where they are URL-encoded, in base64 (alone or inside a longer text) or escaped
// as in JSON. It is safe for concurrent use.
type Redactor struct {
	values func() []string

	mu       sync.Mutex
	last     []string // what patterns were made of
	patterns [][]byte
}

// NewRedactor asks values at each use, so that rotated secrets count at once. values must be quick and safe for concurrent use.
func NewRedactor(values func() []string) *Redactor { return &Redactor{values: values} }

// String returns s without secrets.
func (r *Redactor) String(s string) string {
	patterns := r.current()
	if len(patterns) == 0 {
		return s
	}
	return string(replaceAll([]byte(s), patterns))
}

// Bytes returns b without secrets: b itself when it holds none, else a copy.
func (r *Redactor) Bytes(b []byte) []byte { return replaceAll(b, r.current()) }

// Writer returns a writer that redacts what goes through it to w, also where a secret is split across writes. A write may hold back an end
// that could be the start of a secret; Flush passes it on. Safe for concurrent use.
func (r *Redactor) Writer(w io.Writer) *RedactWriter { return &RedactWriter{r: r, w: w} }

// RedactWriter is made by [Redactor.Writer].
type RedactWriter struct {
	r    *Redactor
	w    io.Writer
	mu   sync.Mutex
	held []byte
}

// Write takes all of p. A failure of the writer below is returned with 0; what was held back then is lost.
func (w *RedactWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	patterns := w.r.current()
	buf := p
	if len(w.held) > 0 {
		buf = append(w.held, p...)
	}
	keep := holdFrom(buf, patterns)
	out := replaceAll(buf[:keep], patterns)
	w.held = bytes.Clone(buf[keep:])
	if len(out) > 0 {
		if _, err := w.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush writes what is held back. Call it when nothing more is to come.
func (w *RedactWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := replaceAll(w.held, w.r.current())
	w.held = nil
	if len(out) == 0 {
		return nil
	}
	_, err := w.w.Write(out)
	return err
}

// current returns the patterns of the present values.
func (r *Redactor) current() [][]byte {
	values := r.values()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(values, r.last) {
		r.last, r.patterns = slices.Clone(values), patternsOf(values)
	}
	return r.patterns
}

// patternsOf lists every form of every value that is long enough.
func patternsOf(values []string) [][]byte {
	set := map[string]bool{}
	for _, v := range values {
		if len(v) < minSecret {
			continue
		}
		for _, form := range formsOf(v) {
			if len(form) >= minSecret {
				set[form] = true
			}
		}
	}
	var out [][]byte
	for _, form := range sortedNames(set) {
		out = append(out, []byte(form))
	}
	return out
}

var percentEncoded = regexp.MustCompile(`%[0-9A-F]{2}`)

// formsOf lists how a value may be written.
func formsOf(v string) []string {
	forms := []string{v, strings.TrimSpace(v), url.QueryEscape(v), url.PathEscape(v), strings.ReplaceAll(url.QueryEscape(v), "+", "%20")}
	for _, f := range forms[2:] {
		forms = append(forms, percentEncoded.ReplaceAllStringFunc(f, strings.ToLower))
	}
	for _, escapeHTML := range []bool{true, false} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(escapeHTML)
		if enc.Encode(v) == nil {
			forms = append(forms, strings.Trim(strings.TrimSpace(b.String()), `"`))
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, enc.EncodeToString([]byte(v)), enc.WithPadding(base64.NoPadding).EncodeToString([]byte(v)))
		for shift := range 3 {
			forms = append(forms, inside(enc, v, shift))
		}
	}
	return forms
}

// inside is the part of v's base64 that does not depend on the bytes around it, when shift bytes (modulo 3) come before it.
func inside(enc *base64.Encoding, v string, shift int) string {
	all := enc.WithPadding(base64.NoPadding).EncodeToString([]byte(strings.Repeat("\x00", shift) + v))
	from := (shift*8 + 5) / 6      // characters that hold bits of what comes before
	to := (shift + len(v)) * 8 / 6 // the last character may hold bits of what comes after
	return all[from:min(to, len(all))]
}

// spans finds every place of b that a pattern covers, joined where they overlap.
func spans(b []byte, patterns [][]byte) [][2]int {
	var found [][2]int
	for _, p := range patterns {
		for from := 0; from+len(p) <= len(b); {
			i := bytes.Index(b[from:], p)
			if i < 0 {
				break
			}
			found = append(found, [2]int{from + i, from + i + len(p)})
			from += i + 1
		}
	}
	slices.SortFunc(found, func(a, b [2]int) int { return a[0] - b[0] })
	var joined [][2]int
	for _, s := range found {
		if n := len(joined); n > 0 && s[0] < joined[n-1][1] {
			joined[n-1][1] = max(joined[n-1][1], s[1])
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

func replaceAll(b []byte, patterns [][]byte) []byte {
	found := spans(b, patterns)
	if len(found) == 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	at := 0
	for _, s := range found {
		out = append(append(out, b[at:s[0]]...), redacted...)
		at = s[1]
	}
	return append(out, b[at:]...)
}

// holdFrom is where the end of b that may be the start of a secret begins; len(b) where there is none.
func holdFrom(b []byte, patterns [][]byte) int {
	keep := len(b)
	for _, p := range patterns {
		for at := max(0, len(b)-len(p)+1); at < keep; at++ {
			i := bytes.IndexByte(b[at:keep], p[0])
			if i < 0 {
				break
			}
			at += i
			if bytes.HasPrefix(p, b[at:]) {
				keep = at
			}
		}
	}
	if keep == len(b) {
		return keep
	}
	for _, s := range spans(b, patterns) { // a whole secret must not be cut in two
		if s[0] < keep && keep < s[1] {
			keep = s[0]
		}
	}
	return keep
}
