package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

// payload is one body and how the admin API shows it.
type payload struct {
	name        string
	contentType string
	body        []byte
}

func payloads(t *testing.T) []payload {
	t.Helper()
	noise := func(n int) []byte {
		b := make([]byte, n)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(`{"a":1}`)); err != nil || z.Close() != nil {
		t.Fatal("gzip")
	}
	return []payload{
		{"nothing", "", nil},
		{"nothing-as-json", "application/json", nil},
		{"json", "application/json", []byte("{ \"n\": 12345678901234567890.10, \"n\": 2, \"e\":\"\\u00e9\\/ <&> \u2028\" }\r\n")},
		{"not-json", "application/json", []byte(`{"a":`)},
		{"text", "text/plain", []byte("line\r\n\ttab \u00e9 \U0001f600\n")},
		{"invalid-utf8", "text/plain; charset=utf-8", []byte("caf\xe9 \xff\xfe\xc0\x80")},
		{"invalid-utf8-as-json", "application/json", []byte("{\"a\":\"\xff\"}")},
		{"nul-bytes", "", []byte("\x00a\x00\x00b\x00")},
		{"nul-in-text", "text/plain", []byte("a\x00b")},
		{"gzip", "application/json", zipped.Bytes()},
		{"template", "text/plain", []byte("${{ event.id }} $(id) `id` %s {{ . }} ${HOME}")},
		{"1MiB-1", "application/octet-stream", noise(mib - 1)},
		{"1MiB", "application/octet-stream", noise(mib)},
		{"1MiB-text", "text/plain", bytes.Repeat([]byte("0123456789abcdef"), mib/16)},
		{"1MiB-json", "application/json", fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", mib-8))},
	}
}

func largePayloads() []payload {
	var big []payload
	for _, n := range []int{mib + 1, 8 * mib} {
		big = append(big, payload{fmt.Sprintf("%d-bytes", n), "application/octet-stream", bytes.Repeat([]byte{0, 0xff, 'x'}, n/3+1)[:n]})
	}
	return big
}

// shown is the payload as the admin API gives it, byte for byte.
func shown(ev *console.EventDetail) []byte {
	switch {
	case ev.Text != nil:
		return []byte(*ev.Text)
	case ev.Base64 != nil:
		return ev.Base64
	}
	return ev.Payload
}

// payloadConfig has two webhooks, with the usual limit and one of 8 MiB, and an http action that sends the payload as it came.
// One turn runs at a time, so that one that is held keeps the others from running.
func payloadConfig(w *world) string {
	return fmt.Sprintf(`
connections:
  in: { webhook: { verify: { scheme: none } } }
  large: { webhook: { verify: { scheme: none }, max_body: 8MiB } }
triggers:
  work:
    connection: [in, large]
    concurrency: [ { limit: 1 } ]
    run: { http: { url: %s/effect } }
`, w.URL)
}

// P18: what was accepted arrives byte for byte, in the action and in the commands, through the ledger and after a kill -9 as well.
func TestPayloadsArriveByteForByte(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(map[bool]string{false: "at once", true: "after kill -9"}[killed], func(t *testing.T) {
			w := newWorld(t)
			release, held := w.hold(t, "held")
			in := newInstallation(t, "", payloadConfig(w))
			p := in.run()
			in.mustPost("in", "held", []byte("held"))
			arrives(t, held) // nothing runs beside it
			sent := map[string]payload{}
			for _, pl := range payloads(t) {
				in.mustPost("in", pl.name, pl.body, "Content-Type", pl.contentType)
				sent["in:work:"+pl.name] = pl
			}
			for _, pl := range largePayloads() {
				in.mustPost("large", pl.name, pl.body, "Content-Type", pl.contentType)
				sent["large:work:"+pl.name] = pl
			}
			if killed {
				in.awaitTurns("work", "all turns are open", 20*time.Second, func(ts []console.TurnInfo) bool { return len(ts) == len(sent)+1 })
				p.kill()
				in.run()
			}
			release()
			in.awaitTurns("work", "all turns are done", 30*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "done") == len(sent)+1 })
			got := map[string][]string{}
			for _, e := range w.all() {
				got[e.key] = append(got[e.key], e.body)
			}
			for key, pl := range sent {
				if len(got[key]) != 1 || got[key][0] != string(pl.body) {
					t.Errorf("%s: the endpoint got %d bodies, %q, sent were %d bytes %q", key, len(got[key]), tail(strings.Join(got[key], "|"), 80), len(pl.body), tail(string(pl.body), 80))
				}
				checkShown(t, in, key, pl)
			}
		})
	}
}

// checkShown wants the very bytes in the turn and in the event.
func checkShown(t *testing.T, in *installation, key string, pl payload) {
	t.Helper()
	turn := in.detail(key)
	ev, err := in.client().Event(t.Context(), fmt.Sprintf("%s/%s", turn.Connection, turn.EventID))
	if err != nil {
		t.Fatal(err)
	}
	for what, ev := range map[string]*console.EventDetail{"turn": &turn.Event, "event": &ev} {
		want := pl.body
		if ev.Payload != nil { // JSON inside of JSON: white space between its tokens is not kept, all else is
			var compact bytes.Buffer
			if err := json.Compact(&compact, pl.body); err != nil {
				t.Fatal(err)
			}
			want = compact.Bytes()
		}
		if b := shown(ev); !bytes.Equal(b, want) {
			t.Errorf("%s: the %s shows %d bytes %q, sent were %d bytes %q", key, what, len(b), tail(string(b), 80), len(pl.body), tail(string(pl.body), 80))
		}
		if ev.Bytes != int64(len(pl.body)) || ev.ContentType != pl.contentType {
			t.Errorf("%s: the %s says %d bytes of %q, sent were %d of %q", key, what, ev.Bytes, ev.ContentType, len(pl.body), pl.contentType)
		}
	}
}

// chunked hides a body's length, so that it is sent in chunks.
type chunked struct{ io.Reader }

func TestPayloadOverTheLimit(t *testing.T) {
	w := newWorld(t)
	in := newInstallation(t, "", payloadConfig(w))
	in.run()
	for _, c := range []struct {
		connection string
		limit      int
	}{{"in", mib}, {"large", 8 * mib}} {
		for _, way := range []string{"length known", "chunked"} {
			t.Run(c.connection+", "+way, func(t *testing.T) {
				var body io.Reader = bytes.NewReader(make([]byte, c.limit+1))
				if way == "chunked" {
					body = chunked{body}
				}
				res, err := httpClient.Post("http://"+in.addr+"/hooks/"+c.connection, "", body)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = res.Body.Close() }()
				b, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(b), fmt.Sprintf("%d bytes", c.limit)) {
					t.Errorf("%s %s, %v; want 413 and the limit named", res.Status, b, err)
				}
			})
		}
		in.mustPost(c.connection, "at-the-limit", make([]byte, c.limit))
	}
	in.awaitTurns("work", "only what was accepted has turns", 10*time.Second, func(ts []console.TurnInfo) bool {
		return len(ts) == 2 && count(ts, "done") == 2
	})
}
