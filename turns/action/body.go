package action

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

// Content types that are given where nobody says.
const (
	typeJSON  = "application/json"
	typeText  = "text/plain; charset=utf-8"
	typeBytes = "application/octet-stream"
)

// body is the template's text, or without a template the input: an object as JSON, bytes as they are.
// A trigger without input sends the payload byte for byte.
func (r *run) body(what string, t *expr.Template) (data []byte, contentType string, f *failure) {
	switch {
	case t != nil:
		data, f = r.bytes(what, t)
		return data, sniff(data), f
	case !r.HasInput:
		ct := r.Event.ContentType
		if ct == "" && len(r.Event.Payload) > 0 {
			ct = sniff(r.Event.Payload)
		}
		return r.Event.Payload, ct, nil
	}
	switch v := r.Input.(type) {
	case nil:
		return nil, "", nil
	case []byte:
		ct := r.Event.ContentType
		if ct == "" {
			ct = typeBytes
		}
		return v, ct, nil
	case string:
		return []byte(v), typeText, nil
	}
	data, err := expr.JSON(r.Input)
	if err != nil {
		return nil, "", dead("render %s: %v", what, err)
	}
	return data, typeJSON, nil
}

// sniff tells JSON objects and lists, text and bytes apart.
func sniff(b []byte) string {
	head := bytes.TrimLeft(b, " \t\r\n")
	switch {
	case len(b) == 0:
		return ""
	case len(head) > 0 && (head[0] == '{' || head[0] == '[') && json.Valid(b):
		return typeJSON
	case utf8.Valid(b):
		return typeText
	}
	return typeBytes
}

// document is the event as a command reads it from its standard input. At most one of Payload, Text and Base64 is there; none for an empty payload.
type document struct {
	ID          string            `json:"id"`
	Type        string            `json:"type"`
	Connection  string            `json:"connection"`
	Time        time.Time         `json:"time"`
	Received    time.Time         `json:"received"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers"`
	Payload     json.RawMessage   `json:"payload,omitempty"` // a JSON payload, numbers as they were written
	Text        *string           `json:"text,omitempty"`
	Base64      []byte            `json:"base64,omitempty"`
	Input       json.RawMessage   `json:"input,omitempty"` // only for a trigger that has one
	Turn        documentTurn      `json:"turn"`
}

type documentTurn struct {
	Key     string `json:"key"`
	Trigger string `json:"trigger"`
	Attempt int    `json:"attempt"`
	Thread  string `json:"thread"`
}

// document renders the default standard input: one line of JSON.
func (r *run) document() ([]byte, *failure) {
	ev := &r.Event
	d := document{
		ID: ev.ID, Type: ev.Type, Connection: r.Connection, Time: ev.Time.UTC(), Received: ev.Received.UTC(),
		ContentType: ev.ContentType, Headers: ev.Headers,
		Turn: documentTurn{Key: r.IdempotencyKey(), Trigger: r.Trigger, Attempt: r.Number, Thread: r.Thread},
	}
	if d.Headers == nil {
		d.Headers = map[string]string{}
	}
	d.setPayload(ev.ContentType, ev.Payload)
	if r.HasInput {
		input, err := expr.JSON(r.Input)
		if err != nil {
			return nil, dead("render stdin: input: %v", err)
		}
		d.Input = input
	}
	out, err := expr.JSON(d)
	if err != nil {
		return nil, dead("render stdin: %v", err)
	}
	return append(out, '\n'), nil
}

// setPayload tells JSON, text and bytes apart as [expr.DecodePayload] does, but leaves JSON as it was written.
func (d *document) setPayload(contentType string, payload []byte) {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	maybeJSON := media == "" || media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
	bare := bytes.TrimPrefix(payload, []byte("\ufeff"))
	switch {
	case len(payload) == 0:
	case !utf8.Valid(payload):
		d.Base64 = payload
	case maybeJSON && json.Valid(bare):
		d.Payload = bare
	case maybeJSON || triggerd.IsText(media):
		text := string(payload)
		d.Text = &text
	default:
		d.Base64 = payload
	}
}
