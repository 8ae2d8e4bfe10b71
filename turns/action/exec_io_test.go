//go:build linux

package action

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
)

func TestExecStdin(t *testing.T) {
	t.Run("is the event as JSON", func(t *testing.T) {
		a := attempt()
		a.Input, a.HasInput = map[string]any{"n": int64(9007199254740993)}, true
		o := newExec(t, ExecOptions{Command: []string{"cat"}}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Done, "")
		want := `{"id":"o-1","type":"order.created","connection":"shop","time":"2026-11-30T12:00:00.005Z","received":"2026-11-30T12:00:01.005Z",` +
			`"content_type":"application/json","headers":{"x-a":"b"},"payload":{"id":9007199254740993,"name":"<Ann>"},"input":{"n":9007199254740993},` +
			`"turn":{"key":"orders:ship:o-1","trigger":"ship-it","attempt":3,"thread":"t-9"}}` + "\n"
		if string(o.Result.Output) != want {
			t.Errorf("got\n%s\nwant\n%s", o.Result.Output, want)
		}
	})
	t.Run("is the template's bytes", func(t *testing.T) {
		a := attempt()
		a.Event.ContentType, a.Event.Payload = "application/octet-stream", []byte("\x00\xff\xfe")
		o := newExec(t, ExecOptions{Command: []string{"cat"}, Stdin: ptr("${{ event.payload }}")}).Run(t.Context(), a)
		if string(o.Result.Output) != "\x00\xff\xfe" {
			t.Errorf("got %q", o.Result.Output)
		}
	})
	t.Run("may be left unread, whatever its size", func(t *testing.T) {
		a := attempt()
		a.Event.Payload = bytes.Repeat([]byte(" "), 8<<20)
		o := newExec(t, ExecOptions{Command: sh("exec <&-; exit 0")}).Run(t.Context(), a)
		wantOutcome(t, o, triggerd.Done, "")
	})
	t.Run("input is the payload where the trigger has none", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: []string{"cat"}, Stdin: ptr("${{ input.name }}")})
		if string(o.Result.Output) != "<Ann>" {
			t.Errorf("got %q", o.Result.Output)
		}
	})
}

// TestDocumentPayload checks that commands and expressions take a payload for the same kind of thing.
func TestDocumentPayload(t *testing.T) {
	tests := []struct{ contentType, payload, want string }{
		{"application/json", `{"a": 1}`, `"payload":{"a":1}`},
		{"application/json", `"text"`, `"payload":"text"`},
		{"application/json", `null`, `"payload":null`},
		{"application/json", "\ufeff[1]", `"payload":[1]`},
		{"application/json", `{broken`, `"text":"{broken"`},
		{"application/json", "\"\xff\"", `"base64":"` + base64.StdEncoding.EncodeToString([]byte("\"\xff\"")) + `"`},
		{"application/cloudevents+json; charset=utf-8", `12345678901234567890123`, `"payload":12345678901234567890123`},
		{"", `[1.0]`, `"payload":[1.0]`},
		{"", `plain`, `"text":"plain"`},
		{"text/plain", `1`, `"text":"1"`},
		{"application/x-www-form-urlencoded", `a=1`, `"text":"a=1"`},
		{"application/octet-stream", `abc`, `"base64":"YWJj"`},
		{"text/plain", "\xff", `"base64":"/w=="`},
	}
	for _, tt := range tests {
		t.Run(tt.contentType+" "+tt.payload, func(t *testing.T) {
			var d document
			d.setPayload(tt.contentType, []byte(tt.payload))
			got, err := expr.JSON(d)
			must(t, err)
			if !strings.Contains(string(got), tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			seen := expr.DecodePayload(tt.contentType, []byte(tt.payload))
			if _, isBytes := seen.([]byte); isBytes != (d.Base64 != nil) {
				t.Errorf("expressions see %T", seen)
			}
			if text, isText := seen.(string); d.Text != nil && (!isText || text != *d.Text) {
				t.Errorf("expressions see %#v", seen)
			}
		})
	}
	t.Run("empty", func(t *testing.T) {
		var d document
		d.setPayload("application/json", nil)
		if d.Payload != nil || d.Text != nil || d.Base64 != nil {
			t.Errorf("got %+v", d)
		}
	})
}

func TestExecOutput(t *testing.T) {
	t.Run("a flood is read to its end and kept up to the limit", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("head -c 52428800 /dev/zero; echo end >&2; exit 1"), MaxOutput: 1000})
		wantOutcome(t, o, triggerd.Retry, "exit code 1: end")
		if r := o.Result; len(r.Output) != 1000 || !r.Cut || r.Bytes != 50<<20+4 {
			t.Errorf("kept %d of %d, cut %v", len(r.Output), r.Bytes, r.Cut)
		}
	})
	t.Run("standard output and error are kept together", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("echo out; echo err >&2")})
		if got := string(o.Result.Output); got != "out\nerr\n" && got != "err\nout\n" || o.Result.Cut || o.Result.Bytes != 8 {
			t.Errorf("got %+v", o.Result)
		}
	})
	t.Run("nothing is kept with a negative limit", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("echo out"), MaxOutput: -1})
		if len(o.Result.Output) != 0 || !o.Result.Cut || o.Result.Bytes != 4 {
			t.Errorf("got %+v", o.Result)
		}
	})
	t.Run("an endless line is bounded in the cause", func(t *testing.T) {
		o := runExec(t, ExecOptions{Command: sh("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1")})
		if want := "exit code 1: " + strings.Repeat("x", maxErrorLine-3) + "..."; o.Cause != want {
			t.Errorf("cause %q", o.Cause)
		}
	})
}

func TestExecSecretsStayOut(t *testing.T) {
	const secret = "s3cret-value-long"
	redact := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(secret), []byte("***")) }
	opts := ExecOptions{
		Env: map[string]string{"TOKEN": "${{ secrets.tok }}"}, Secrets: secretsOf(map[string]string{"tok": secret}), Redact: redact,
	}
	t.Run("of output and cause", func(t *testing.T) {
		opts.Command = sh(`echo "out $TOKEN"; echo "err $TOKEN" >&2; exit 1`)
		o := runExec(t, opts)
		if strings.Contains(o.Cause, secret) || !strings.Contains(o.Cause, "err ") {
			t.Errorf("cause %q", o.Cause)
		}
		if bytes.Contains(o.Result.Output, []byte(secret)) || !bytes.Contains(o.Result.Output, []byte("out ***")) {
			t.Errorf("output %q", o.Result.Output)
		}
	})
	t.Run("of an output that is cut within one", func(t *testing.T) {
		for _, max := range []int64{10, 17, 20} {
			opts.MaxOutput = max
			opts.Command = sh(`printf '12345678%s%s' "$TOKEN" "$TOKEN"`)
			o := runExec(t, opts)
			if bytes.Contains(o.Result.Output, []byte(secret[:2])) || !bytes.HasPrefix(o.Result.Output, []byte("12345678**")) {
				t.Errorf("limit %d: output %q", max, o.Result.Output)
			}
		}
	})
	t.Run("of an output whose end was never read", func(t *testing.T) {
		opts.MaxOutput = 100
		opts.Command = sh(`while :; do printf '%s' "$TOKEN"; done 2>/dev/null | head -c 100001`)
		o := runExec(t, opts)
		if bytes.Contains(o.Result.Output, []byte(secret[:2])) {
			t.Errorf("output %q", o.Result.Output)
		}
	})
	t.Run("of a cause without a redactor", func(t *testing.T) {
		opts.Redact = nil
		opts.Command = sh(`echo "err $TOKEN" >&2; exit 1`)
		if o := runExec(t, opts); o.Cause != "exit code 1: err "+redacted {
			t.Errorf("cause %q", o.Cause)
		}
	})
}

func TestExecResultIsJSONWithoutOutput(t *testing.T) {
	o := runExec(t, ExecOptions{Command: sh("echo hi")})
	b, err := json.Marshal(o.Result)
	must(t, err)
	if string(b) != `{"exit_code":0,"bytes":3}` {
		t.Errorf("got %s", b)
	}
}
