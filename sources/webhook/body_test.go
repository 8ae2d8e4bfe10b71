package webhook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/triggerd/triggerd/sources"
)

// serve puts the router behind a real server, for what a recorder cannot show.
func (b *bench) serve(change func(*http.Server)) *httptest.Server {
	srv := httptest.NewUnstartedServer(b.router)
	if change != nil {
		change(srv.Config)
	}
	srv.Start()
	b.t.Cleanup(srv.Close)
	return srv
}

// dial opens a connection on which a test writes what it likes; next reads an answer.
func (b *bench) dial(srv *httptest.Server) (conn net.Conn, next func() int) {
	b.t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	r := bufio.NewReader(conn)
	return conn, func() int {
		b.t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			b.t.Fatal(err)
		}
		return resp.StatusCode
	}
}

func send(conn net.Conn, body string) {
	fmt.Fprintf(conn, "POST /hooks/in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func sendChunked(conn net.Conn, body string) {
	fmt.Fprintf(conn, "POST /hooks/in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
}

// counted counts what is read of it.
type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestBodyArrivesByteForByte(t *testing.T) {
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	for name, body := range map[string][]byte{
		"nothing":                  nil,
		"one byte":                 {0},
		"not UTF-8, and NUL bytes": []byte("\x00\xff\xfe \r\n\r\n\x00"),
		"1 MiB":                    big[:1<<20],
		"over 1 MiB":               big[:1<<20+1],
		"the limit":                big,
	} {
		for _, length := range []string{"known", "unknown"} {
			t.Run(name+", length "+length, func(t *testing.T) {
				b := setup(t, func(o *Options) { o.MaxBody = 3 << 20 })
				r := httptest.NewRequest(http.MethodPost, "/hooks/in", bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/x-thing")
				if length == "unknown" {
					r.ContentLength = -1
				}
				if a := b.do(r); a.status != http.StatusAccepted {
					t.Fatalf("answer %+v", a)
				}
				if ev := b.only(); !bytes.Equal(ev.Payload, body) || ev.ContentType != "application/x-thing" {
					t.Errorf("stored %d bytes of %q, sent %d", len(ev.Payload), ev.ContentType, len(body))
				}
			})
		}
	}
}

func TestBodyLimit(t *testing.T) {
	limit := func(o *Options) { o.MaxBody = 1000 }
	t.Run("a body that is announced as far too large is not read", func(t *testing.T) {
		b := setup(t, limit)
		body := &counted{r: strings.NewReader(strings.Repeat("x", 5000))}
		r := httptest.NewRequest(http.MethodPost, "/hooks/in", body)
		r.ContentLength = drainMax + 1
		if a := b.do(r); a.status != 413 || body.n != 0 {
			t.Errorf("answer %+v after %d bytes", a, body.n)
		}
	})
	t.Run("a sender that waits for 100 Continue is not asked for the body", func(t *testing.T) {
		b := setup(t, limit)
		conn, next := b.dial(b.serve(nil))
		fmt.Fprintf(conn, "POST /hooks/in HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
		if status := next(); status != 413 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("without a length, one byte more than the limit is kept", func(t *testing.T) {
		body := &counted{r: strings.NewReader(strings.Repeat("x", 5000))}
		got, err := read(body, -1, 1000)
		if err != nil || len(got) != 1001 || body.n != 1001 {
			t.Errorf("%d bytes kept of %d read, error %v", len(got), body.n, err)
		}
	})
	t.Run("the connection stays usable", func(t *testing.T) {
		b := setup(t, limit)
		conn, next := b.dial(b.serve(nil))
		for i, step := range []struct {
			send func(net.Conn, string)
			n    int
			want int
		}{
			{send, 1001, 413}, {send, 1000, 202}, {sendChunked, 1001, 413}, {sendChunked, 1000, 202},
			{send, 1 << 20, 413}, {sendChunked, 1 << 20, 413}, {send, 0, 202},
		} {
			step.send(conn, strings.Repeat("x", step.n))
			if got := next(); got != step.want {
				t.Errorf("step %d: status %d for %d bytes", i, got, step.n)
			}
		}
	})
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	const head = "POST /hooks/in HTTP/1.1\r\nHost: x\r\nIdempotency-Key: half\r\n"
	for name, half := range map[string]string{
		"half a body":                   head + "Content-Length: 500\r\n\r\nonly this",
		"half a large body":             head + "Content-Length: 1048000\r\n\r\nonly this",
		"half a chunked body":           head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"a chunk that says no length":   head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"a chunked body without an end": head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
	} {
		t.Run(name+" stores nothing", func(t *testing.T) {
			b := setup(t, nil)
			conn, next := b.dial(b.serve(nil))
			fmt.Fprint(conn, half)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if status := next(); status != 400 {
				t.Errorf("status %d", status)
			}
			if b.mem.Calls() != 0 {
				t.Errorf("stored %v", b.mem.Events())
			}
		})
	}
	t.Run("a body that is too slow is given up", func(t *testing.T) {
		b := setup(t, nil)
		conn, next := b.dial(b.serve(func(s *http.Server) { s.ReadTimeout = 50 * time.Millisecond }))
		fmt.Fprint(conn, head+"Content-Length: 500\r\n\r\nonly this")
		if status := next(); status != http.StatusRequestTimeout || b.mem.Calls() != 0 {
			t.Errorf("status %d, stored %v", status, b.mem.Events())
		}
	})
	t.Run("an announced length takes no memory before it is sent", func(t *testing.T) {
		got, err := read(strings.NewReader("x"), 64<<20, 64<<20)
		if !errors.Is(err, io.EOF) || cap(got) > firstRead {
			t.Errorf("%d bytes of memory, error %v", cap(got), err)
		}
	})
}

func TestHeaders(t *testing.T) {
	tests := []struct {
		name    string
		headers []string
		want    map[string]string
	}{
		{"names in lower case, values joined", []string{"X-One: 1", "X-Two: a", "X-Two: b"}, map[string]string{"x-one": "1", "x-two": "a, b"}},
		{"no credentials", []string{"Cookie: c", "Proxy-Authorization: p", "Authorization: a"}, map[string]string{}},
		{
			"nothing of one connection only",
			[]string{"Keep-Alive: 5", "Connection: close, x-hop", "X-Hop: h", "TE: trailers", "Upgrade: h2c", "X-Kept: k"},
			map[string]string{"x-kept": "k"},
		},
		{"not UTF-8", []string{"X-Latin: caf\xe9"}, map[string]string{"x-latin": "caf\uFFFD"}},
		{
			"over 16 KiB the largest are left out",
			[]string{"X-Big: " + strings.Repeat("x", sources.MaxHeaders), "X-Small: s", "Cookie: c"}, map[string]string{"x-small": "s"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, nil)
			b.post("", tt.headers...)
			if got := b.only().Headers; !maps.Equal(got, tt.want) {
				t.Errorf("kept %v, want %v", got, tt.want)
			}
		})
	}
}
