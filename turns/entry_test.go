package turns

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

func subjectOf(k triggerd.TurnKey) string { return "triggerd.turn.default.7." + k.Hash() }

func drawTime(t *rapid.T, label string) time.Time {
	return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns")).UTC()
}

func drawMaybeTime(t *rapid.T, label string) *time.Time {
	if rapid.Bool().Draw(t, "no "+label) {
		return nil
	}
	at := drawTime(t, label)
	return &at
}

func drawEntry(t *rapid.T) *Entry {
	text := rapid.String()
	code := rapid.IntRange(-1, 255).Draw(t, "code")
	e := &Entry{
		State:   rapid.SampledFrom([]State{Queued, Running, Failed, Held, Parked, Done, Dead, Skipped, Cancelled}).Draw(t, "state"),
		Claimed: rapid.Bool().Draw(t, "claimed"), Undecided: rapid.Bool().Draw(t, "undecided"), Queues: rapid.Bool().Draw(t, "queues"), Attempt: rapid.IntRange(0, 1000).Draw(t, "attempt"), Cause: text.Draw(t, "cause"),
		Time: drawTime(t, "time"), NotBefore: drawMaybeTime(t, "not before"), FirstTry: drawMaybeTime(t, "first try"),
		Process: rapid.SampledFrom([]*Process{nil, {Host: "h", Group: 7, Started: "9"}}).Draw(t, "process"),
		OnCrash: rapid.SampledFrom([]string{"", OnCrashPark}).Draw(t, "on crash"),
		Result: rapid.SampledFrom([]*triggerd.Result{nil, {}, {
			ExitCode: &code, Status: 503, ContentType: text.Draw(t, "type"), Cut: true, Bytes: 1 << 40,
		}}).Draw(t, "result"),
		Daemon: text.Draw(t, "daemon"), Epoch: rapid.Uint64().Draw(t, "epoch"), Opened: drawTime(t, "opened"),
		OpenSeq: rapid.Uint64Min(1).Draw(t, "open seq"), Whole: rapid.Uint64().Draw(t, "whole"), Since: rapid.Uint64().Draw(t, "since"),
		Key: triggerd.TurnKey{
			Connection: "c", Trigger: "t", EventID: rapid.StringN(1, 40, 200).Draw(t, "id"), Replay: rapid.IntRange(0, 9).Draw(t, "replay"),
		},
		ReplayOf: text.Draw(t, "replay of"), Thread: text.Draw(t, "thread"), Lane: text.Draw(t, "lane"), Hops: rapid.IntRange(0, 8).Draw(t, "hops"),
		Version: text.Draw(t, "version"), Action: text.Draw(t, "action"),
	}
	for i := range parts {
		if rapid.Bool().Draw(t, "blob") {
			e.Parts[i].Blob = "blob" + string(rune('0'+i))
			continue
		}
		e.body[i] = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
	}
	e.Parts[partInput].Kind = rapid.SampledFrom([]string{"", "json", "text", "bytes"}).Draw(t, "kind")
	return e
}

func drawMeta(t *rapid.T) *eventMeta {
	text := rapid.String()
	return &eventMeta{
		Subscription: text.Draw(t, "subscription"), Type: text.Draw(t, "event type"), Time: rapid.SampledFrom([]time.Time{{}, drawTime(t, "event time")}).Draw(t, "happened"),
		Received: drawTime(t, "received"), ContentType: text.Draw(t, "content type"), Headers: rapid.MapOf(text, text).Draw(t, "headers"),
		Cursor: rapid.SliceOf(rapid.Byte()).Draw(t, "cursor"), Hops: rapid.IntRange(0, 8).Draw(t, "hops"), Seq: rapid.Uint64().Draw(t, "seq"),
		Target: text.Draw(t, "target"),
	}
}

// The encoder written by hand says what encoding/json says.
func TestEncodingIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, m := drawEntry(t), drawMeta(t)
		for _, c := range []struct {
			got  []byte
			like any
		}{{e.appendJSON(nil), e}, {m.appendJSON(nil), m}} {
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(c.like); err != nil {
				t.Fatal(err)
			}
			if got := string(c.got) + "\n"; got != want.String() {
				t.Fatalf("got  %s\nwant %s", got, want.String())
			}
		}
	})
}

// Whatever an entry holds, it comes back from the wire as it was.
func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		e.Writer = "w:1"
		subject := subjectOf(e.Key)
		m, err := e.message(subject)
		if err != nil {
			t.Fatal(err)
		}
		// As the client sends it and the server stores it: a header that held a line break would end there.
		if strings.ContainsAny(m.Header.Get(headerTurn), "\r\n") {
			t.Fatal("the entry breaks its header")
		}
		if undecided, epoch, ok := glance(m.Header.Get(headerTurn)); !ok || undecided != e.Undecided || epoch != e.Epoch {
			t.Fatalf("at a glance: undecided %v, epoch %d, %v; it is %+v", undecided, epoch, ok, e)
		}
		got, err := decodeEntry(subject, m.Header, m.Data, e.OpenSeq+5)
		if err != nil {
			t.Fatal(err)
		}
		for i := range e.body {
			if !bytes.Equal(got.body[i], e.body[i]) {
				t.Fatalf("part %d: %q, want %q", i, got.body[i], e.body[i])
			}
			got.body[i], e.body[i] = nil, nil
		}
		e.Seq, e.Subject = e.OpenSeq+5, subject
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("got  %+v\nwant %+v", got, e)
		}
		var blobs []string
		for _, p := range e.Parts {
			if p.Blob != "" {
				blobs = append(blobs, p.Blob)
			}
		}
		if h := m.Header.Get(bus.HeaderBlob); h != strings.Join(blobs, ",") {
			t.Fatalf("the sweep is told of %q, want %v", h, blobs)
		}
	})
}

// A glance is not taken in by what texts in a header look like, and says so when it sees nothing.
func TestGlance(t *testing.T) {
	sly := `,"ud":true,"ep":9,`
	e := &Entry{State: Running, Cause: sly, Daemon: sly, Epoch: 4, Thread: sly, Result: &triggerd.Result{ContentType: sly}}
	if undecided, epoch, ok := glance(string(e.appendJSON(nil))); !ok || undecided || epoch != 4 {
		t.Errorf("undecided %v, epoch %d, %v", undecided, epoch, ok)
	}
	for _, head := range []string{"", "{", `{"s":"queued","ud":true}`, `{"s":"queued","ep":}`, `{"s":"queued","ep":"7"}`, `{"s":"queued","ep":99999999999999999999}`} {
		if _, _, ok := glance(head); ok {
			t.Errorf("%s is clear at a glance", head)
		}
	}
}

func TestDecodeEntryRefuses(t *testing.T) {
	k := triggerd.TurnKey{Connection: "c", Trigger: "t", EventID: "1"}
	good := func() *Entry {
		return &Entry{State: Queued, Key: k, body: [parts][]byte{[]byte("pay"), []byte("in"), []byte("out")}}
	}
	for name, c := range map[string]struct {
		change func(*nats.Msg)
		want   string
	}{
		"no entry at all":         {func(m *nats.Msg) { m.Header.Del(headerTurn) }, "decode turn entry 3"},
		"not JSON":                {func(m *nats.Msg) { m.Header.Set(headerTurn, "{") }, "decode turn entry 3"},
		"a state of the future":   {replaceMeta(`"s":"queued"`, `"s":"napping"`), `unknown state "napping"`},
		"somebody else's subject": {func(m *nats.Msg) { m.Subject = subjectOf(triggerd.TurnKey{EventID: "2"}) }, "of another turn"},
		"parts that are cut off":  {func(m *nats.Msg) { m.Data = m.Data[:5] }, "part 2 has 3 bytes, 0 are left"},
		"bytes of no part":        {func(m *nats.Msg) { m.Data = append(m.Data, 'x') }, "1 bytes belong to no part"},
		"a negative length":       {replaceMeta(`"l":2`, `"l":-2`), "part 1 has -2 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := good().message(subjectOf(k))
			if err != nil {
				t.Fatal(err)
			}
			c.change(m)
			if _, err := decodeEntry(m.Subject, m.Header, m.Data, 3); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
		})
	}
}

func replaceMeta(from, to string) func(*nats.Msg) {
	return func(m *nats.Msg) { m.Header.Set(headerTurn, strings.Replace(m.Header.Get(headerTurn), from, to, 1)) }
}

func TestInputKeepsItsType(t *testing.T) {
	for name, v := range map[string]any{
		"text": "a ${{ b }}", "empty text": "", "bytes": []byte{0, 255}, "object": map[string]any{"a": []any{"b", true, nil}}, "number": 1.5, "null": nil,
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Options{})
			b, kind, err := encodeInput(v, e.opts.ToJSON)
			if err != nil {
				t.Fatal(err)
			}
			if got := decodeInput(b, kind, e.opts.FromJSON); !reflect.DeepEqual(got, v) {
				t.Fatalf("%#v, want %#v", got, v)
			}
		})
	}
	t.Run("what JSON cannot say is an error", func(t *testing.T) {
		if _, _, err := encodeInput(func() {}, json.Marshal); err == nil {
			t.Fatal("no error")
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	k := triggerd.TurnKey{Connection: "c", Trigger: "t", EventID: "1"}
	for _, e := range []*Entry{
		{State: Queued, Key: k, body: [parts][]byte{[]byte("payload"), []byte("{}"), nil, []byte(`{"t":"x"}`)}},
		{State: Running, Key: k, Process: &Process{Group: 4}},
		{State: Done, Key: k, OpenSeq: 3, Result: &triggerd.Result{Status: 200}, body: [parts][]byte{nil, nil, []byte("out")}, Parts: [parts]part{{Blob: "b"}}},
	} {
		m, err := e.message(subjectOf(k))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.Subject, m.Header.Get(headerTurn), m.Data, uint64(3))
	}
	f.Add(subjectOf(k), `{"s":"queued","k":{"e":"1"},"p":[{"l":9223372036854775807},{"l":1},{"l":-1}]}`, []byte("x"), uint64(1))
	f.Add("", "null", []byte(nil), uint64(0))
	f.Fuzz(func(t *testing.T, subject, meta string, data []byte, seq uint64) {
		h := nats.Header{headerTurn: {meta}}
		e, err := decodeEntry(subject, h, data, seq)
		if err != nil {
			return
		}
		// What was accepted can be shown, put on the board and written again.
		_ = infoOf(e)
		if b := turnOf(e); !strings.HasSuffix(subject, b.hash) {
			t.Fatalf("entry of %s on %s", b.hash, subject)
		}
		n := 0
		for i := range e.body {
			n += e.Parts[i].Len
		}
		if n != len(data) {
			t.Fatalf("%d of %d bytes are in parts", n, len(data))
		}
		m, err := e.message(subject)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeEntry(subject, m.Header, m.Data, seq); err != nil {
			t.Fatalf("written again it cannot be read: %v", err)
		}
	})
}
