package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/triggerd/triggerd"
)

// DecodePayload is a payload as expressions see it:
//
//   - nothing: nil;
//   - JSON (a JSON content type, or none and the bytes are JSON): map[string]any, []any, string, bool, nil and numbers;
//   - text (see [triggerd.IsText], or no content type) that is valid UTF-8, and JSON that is broken: a string;
//   - anything else: the bytes as they are.
//
// Numbers are exact. A number written without fraction and exponent is an int64, or a uint64 where only that holds it, or else
// the string of its digits. Any other is a float64, or the string as written where that would be infinite. Zero has no sign: "-0" is the int 0.
// A name that comes twice in an object counts as its last value; half a surrogate pair becomes U+FFFD. The result may share b's memory.
func DecodePayload(contentType string, b []byte) any {
	if len(b) == 0 {
		return nil
	}
	media := mediaType(contentType)
	valid := utf8.Valid(b)
	if valid && (media == "" || isJSON(media)) {
		if v, err := decodeJSON(b); err == nil {
			return v
		}
	}
	if valid && (media == "" || isJSON(media) || triggerd.IsText(media)) {
		return string(b)
	}
	return b
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

var byteOrderMark = []byte("\ufeff")

func decodeJSON(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, byteOrderMark)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the JSON value")
	}
	return exact(v), nil
}

// exact replaces the numbers in v, in place.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			switch e.(type) {
			case json.Number, map[string]any, []any:
				v[k] = exact(e)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = exact(e)
		}
	case json.Number:
		return number(string(v))
	}
	return v
}

func number(s string) any {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(s, 10, 64); err == nil {
			return u
		}
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsInf(f, 0):
		return s
	case f == 0:
		return 0.0
	}
	return f
}

// JSON is the compact JSON of a plain value (what [DecodePayload] and [Template.Render] give): integers exact, names sorted,
// nothing escaped for HTML, bytes as base64, times as RFC 3339 with the fraction they have. NaN and infinities are errors.
func JSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
