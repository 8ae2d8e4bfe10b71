package turns

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// What follows writes an entry's header and its event as encoding/json would, byte for byte (a test compares them), for a fraction of the time:
// every turn is stored with at least two entries. The tags of [Entry] and [eventMeta] say what is written; decoding is encoding/json's.

// appendJSON appends e as JSON.
func (e *Entry) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendText(b, "s", string(e.State))
	if e.Claimed {
		b = append(appendName(b, "cl"), "true"...)
	}
	if e.Undecided {
		b = append(appendName(b, "ud"), "true"...)
	}
	if e.Queues {
		b = append(appendName(b, "qu"), "true"...)
	}
	b = appendNumber(b, "a", int64(e.Attempt))
	b = appendSome(b, "why", e.Cause)
	b = appendTime(b, "at", &e.Time)
	b = appendTime(b, "nb", e.NotBefore)
	b = appendTime(b, "ft", e.FirstTry)
	if e.Process != nil {
		b = appendAny(appendName(b, "pr"), e.Process)
	}
	b = appendSome(b, "oc", e.OnCrash)
	if e.Result != nil {
		b = appendAny(appendName(b, "res"), e.Result)
	}
	b = appendText(b, "d", e.Daemon)
	b = strconv.AppendUint(appendName(b, "ep"), e.Epoch, 10)
	b = appendTime(b, "op", &e.Opened)
	if e.OpenSeq != 0 {
		b = strconv.AppendUint(appendName(b, "os"), e.OpenSeq, 10)
	}
	if e.Whole != 0 {
		b = strconv.AppendUint(appendName(b, "w"), e.Whole, 10)
	}
	if e.Since != 0 {
		b = strconv.AppendUint(appendName(b, "si"), e.Since, 10)
	}
	b = append(appendName(b, "k"), '{')
	b = appendText(b, "c", e.Key.Connection)
	b = appendText(b, "t", e.Key.Trigger)
	b = appendText(b, "e", e.Key.EventID)
	b = append(appendNumber(b, "n", int64(e.Key.Replay)), '}')
	b = appendSome(b, "ro", e.ReplayOf)
	b = appendSome(b, "th", e.Thread)
	b = appendSome(b, "ln", e.Lane)
	b = appendNumber(b, "h", int64(e.Hops))
	b = appendSome(b, "v", e.Version)
	b = appendSome(b, "x", e.Action)
	if e.Parts != [parts]part{} {
		b = append(appendName(b, "p"), '[')
		for i := range e.Parts {
			b = e.Parts[i].appendJSON(separate(b))
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (p *part) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendNumber(b, "l", int64(p.Len))
	b = appendSome(b, "b", p.Blob)
	return append(appendSome(b, "k", p.Kind), '}')
}

// appendJSON appends m as JSON.
func (m *eventMeta) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendSome(b, "su", m.Subscription)
	b = appendText(b, "t", m.Type)
	if !m.Time.IsZero() {
		b = appendTime(b, "at", &m.Time)
	}
	b = appendTime(b, "rx", &m.Received)
	b = appendSome(b, "ct", m.ContentType)
	if len(m.Headers) > 0 {
		b = append(appendName(b, "hd"), '{')
		for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
			b = appendString(append(appendString(separate(b), k), ':'), m.Headers[k])
		}
		b = append(b, '}')
	}
	if len(m.Cursor) > 0 {
		b = append(appendName(b, "cu"), '"')
		b = append(base64.StdEncoding.AppendEncode(b, m.Cursor), '"')
	}
	b = appendNumber(b, "h", int64(m.Hops))
	if m.Seq != 0 {
		b = strconv.AppendUint(appendName(b, "q"), m.Seq, 10)
	}
	return append(appendSome(b, "tg", m.Target), '}')
}

// separate appends a comma, unless b ends where an object or an array begins.
func separate(b []byte) []byte {
	if last := b[len(b)-1]; last == '{' || last == '[' {
		return b
	}
	return append(b, ',')
}

func appendName(b []byte, name string) []byte {
	b = append(separate(b), '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendText(b []byte, name, v string) []byte { return appendString(appendName(b, name), v) }

// appendSome and appendNumber leave out what is empty or 0.
func appendSome(b []byte, name, v string) []byte {
	if v == "" {
		return b
	}
	return appendText(b, name, v)
}

func appendNumber(b []byte, name string, v int64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), v, 10)
}

// appendTime leaves out nil.
func appendTime(b []byte, name string, t *time.Time) []byte {
	if t == nil {
		return b
	}
	b = append(appendName(b, name), '"')
	return append(t.UTC().AppendFormat(b, time.RFC3339Nano), '"')
}

// appendString appends s in quotes. Nobody shows this in a page, so that "<" stays as it is.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendAny(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendAny(b []byte, v any) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // texts and numbers always have an encoding
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
