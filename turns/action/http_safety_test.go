package action

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/triggerd/triggerd"
)

func TestHTTPRedirect(t *testing.T) {
	other, otherSeen := record(t, nil)
	tests := []struct {
		name     string
		location string
		code     int
		verb     triggerd.Verb
		cause    string
		method   string // of the last request
		body     string
	}{
		{"307 keeps method and body", "/end", 307, triggerd.Done, "", "POST", "hello"},
		{"308 keeps method and body", "/end", 308, triggerd.Done, "", "POST", "hello"},
		{"303 becomes a GET", "/end", 303, triggerd.Done, "", "GET", ""},
		{"another origin is not followed", other.URL + "/in?token=abc", 307, triggerd.Dead, "to another origin, " + other.URL + ":", "POST", "hello"},
		{"another scheme is another origin", "ftp://user:pass@x.example/", 307, triggerd.Dead, "to another origin, ftp://x.example:", "POST", "hello"},
		{"a loop ends", "/again", 307, triggerd.Dead, "more than 5 redirects", "POST", "hello"},
		{"no location", "", 307, triggerd.Dead, "HTTP 307", "POST", "hello"},
		{"a location that is none", "http://[::1/?token=abc", 307, triggerd.Dead, "to a Location that is not a URL", "POST", "hello"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv, requests := record(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					return
				}
				if tt.location != "" {
					w.Header().Set("Location", tt.location)
				}
				w.WriteHeader(tt.code)
			})
			o := newHTTP(t, HTTPOptions{URL: srv.URL, Body: ptr("hello"), Headers: map[string]string{"Authorization": "Basic x"}}).Run(t.Context(), attempt())
			wantOutcome(t, o, tt.verb, tt.cause)
			if strings.Contains(o.Cause, "abc") || strings.Contains(o.Cause, "pass") {
				t.Errorf("cause %q shows what may be secret", o.Cause)
			}
			var last seen
			for n := len(requests); n > 0; n-- {
				last = <-requests
			}
			if last.Method != tt.method || last.body != tt.body || last.Header.Get("Authorization") != "Basic x" || last.Header.Get("Idempotency-Key") == "" {
				t.Errorf("last request %s %q %v", last.Method, last.body, last.Header)
			}
			if len(otherSeen) > 0 {
				t.Error("the other origin was called")
			}
		})
	}
}

func TestHTTPPrivateAddresses(t *testing.T) {
	srv, requests := record(t, nil)
	host := strings.TrimPrefix(srv.URL, "http://")
	port := host[strings.LastIndexByte(host, ':'):]
	tests := []struct {
		name, url string
		allow     bool
		verb      triggerd.Verb
	}{
		{"written out", srv.URL + "/${{ event.id }}", false, triggerd.Done},
		{"from a template", "http://${{ '127.0.0.1' }}" + port + "/", false, triggerd.Dead},
		{"port from a template", "http://127.0.0.1:${{ '" + port[1:] + "' }}/", false, triggerd.Dead},
		{"no end of the host", srv.URL + "${{ '/x' }}", false, triggerd.Dead},
		{"whole URL from a template", "${{ '" + srv.URL + "' }}", false, triggerd.Dead},
		{"by name", "http://${{ 'localhost' }}" + port + "/", false, triggerd.Dead},
		{"mapped into IPv6", "http://${{ '[::ffff:127.0.0.1]' }}" + port + "/", false, triggerd.Dead},
		{"allowed", "http://${{ '127.0.0.1' }}" + port + "/", true, triggerd.Done},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newHTTP(t, HTTPOptions{URL: tt.url, AllowPrivate: tt.allow}).Run(t.Context(), attempt())
			cause := ""
			if tt.verb == triggerd.Dead {
				cause = "only public addresses are allowed"
			}
			wantOutcome(t, o, tt.verb, cause)
			if got := len(requests); (got == 1) != (tt.verb == triggerd.Done) {
				t.Errorf("%d requests", got)
			}
			for len(requests) > 0 {
				<-requests
			}
		})
	}
}

func TestNotPublic(t *testing.T) {
	private := []string{
		"127.0.0.1", "127.255.0.1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.255",
		"0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"::", "::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::10.0.0.1",
		"64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:0a00:0001::1", "2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "100::1",
	}
	for _, s := range private {
		if notPublic(netip.MustParseAddr(s)) == "" {
			t.Errorf("%s counts as public", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:0101:0101::1", "2001:4860::1"} {
		if kind := notPublic(netip.MustParseAddr(s)); kind != "" {
			t.Errorf("%s counts as %s", s, kind)
		}
	}
	if checkPublic("nonsense") == nil || checkPublic("[fe80::1%1]:80") == nil || checkPublic("1.1.1.1:80") != nil {
		t.Error("checkPublic is wrong about nonsense, a zone or a public address")
	}
}

func TestHTTPFailure(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0) // it would report our refusal
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	hangUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(hangUp.Close)
	withUser := strings.Replace(closed.URL, "http://", "http://user:hunter2hunter2@", 1) + "/x?token=hunter3hunter3"
	tests := []struct {
		name, url string
		headers   map[string]string
		verb      triggerd.Verb
		cause     string
	}{
		{"refused connection", withUser, nil, triggerd.Retry, "call " + closed.URL + ": dial tcp"},
		{"certificate that nobody trusts", tlsServer.URL, nil, triggerd.Retry, "certificate"},
		{"connection that breaks", hangUp.URL, nil, triggerd.Retry, "call " + hangUp.URL},
		{"not a URL after rendering", "http://x.example${{ ':y/' }}", nil, triggerd.Dead, "render url: not a valid URL"},
		{"another scheme after rendering", "${{ 'file' }}:///etc/passwd", nil, triggerd.Dead, "it must begin with http"},
		{"no host after rendering", "http://${{ '' }}/x", nil, triggerd.Dead, "it has no host"},
		{"a control character in the URL", "http://x.example/${{ 'a\\r\\nb' }}", nil, triggerd.Dead, "invalid control character in URL"},
		{"a line break in a header", closed.URL, map[string]string{"X-A": "${{ 'a\\r\\nX-B: 1' }}"}, triggerd.Dead, "header X-A: its value has a control character"},
		{"a host header that is none", closed.URL, map[string]string{"Host": "${{ 'a/b' }}"}, triggerd.Dead, "header Host"},
		{"a failing template", "http://x.example/${{ event.payload.nope }}", nil, triggerd.Dead, "render url: "},
		{"a secret that cannot be read", "http://x.example/${{ secrets.gone }}", nil, triggerd.Retry, `render url: secret "gone"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newHTTP(t, HTTPOptions{URL: tt.url, Headers: tt.headers, Secrets: secretsOf(nil)}).Run(t.Context(), attempt())
			wantOutcome(t, o, tt.verb, tt.cause)
			if strings.Contains(o.Cause, "hunter") {
				t.Errorf("cause %q shows a secret", o.Cause)
			}
		})
	}
}

func TestHTTPOptionsAreRefused(t *testing.T) {
	tests := map[string]struct {
		opts HTTPOptions
		want string
	}{
		"no URL":          {HTTPOptions{}, "must begin with http"},
		"bad scheme":      {HTTPOptions{URL: "ftp://x/"}, "must begin with http"},
		"no host":         {HTTPOptions{URL: "http:///x"}, "it has no host"},
		"bad template":    {HTTPOptions{URL: "http://x/${{"}, "url: "},
		"bad method":      {HTTPOptions{URL: "http://x/", Method: "GET /"}, "method: "},
		"CONNECT":         {HTTPOptions{URL: "http://x/", Method: "connect"}, "method: "},
		"bad header name": {HTTPOptions{URL: "http://x/", Headers: map[string]string{"a b": ""}}, `header name "a b"`},
		"empty name":      {HTTPOptions{URL: "http://x/", Headers: map[string]string{"": ""}}, "name is empty"},
		"framing":         {HTTPOptions{URL: "http://x/", Headers: map[string]string{"content-length": "1"}}, "set by triggerd"},
		"hops":            {HTTPOptions{URL: "http://x/", Headers: map[string]string{"triggerd-hops": "0"}}, "set by triggerd"},
		"name twice":      {HTTPOptions{URL: "http://x/", Headers: map[string]string{"X-A": "", "x-a": ""}}, "given twice"},
		"bad header":      {HTTPOptions{URL: "http://x/", Headers: map[string]string{"X-A": "${{"}}, "headers.X-A: "},
		"bad body":        {HTTPOptions{URL: "http://x/", Body: ptr("${{")}, "body: "},
		"bad status":      {HTTPOptions{URL: "http://x/", RetryStatus: []int{42}}, "retry_status: 42"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewHTTP(tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
