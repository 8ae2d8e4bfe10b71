package action

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/triggerd/triggerd/expr"
)

// parseURL refuses what no request can be made to. Its errors do not quote the URL, which may hold a secret.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		var escape url.EscapeError
		var host url.InvalidHostError
		if errors.As(err, &escape) || errors.As(err, &host) || strings.Contains(err.Error(), `"`) {
			err = errors.New("not a valid URL")
		}
		return nil, fmt.Errorf("url: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url: it must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("url: it has no host")
	}
	return u, nil
}

// hostIsStatic reports whether the text before the first expression fixes scheme, host and port: it must go on to the path, since
// "https://example.com${{ x }}" could become any host.
func hostIsStatic(t *expr.Template) bool {
	prefix := t.StaticPrefix()
	if t.Static() {
		return true
	}
	_, rest, ok := strings.Cut(prefix, "://")
	if !ok {
		return false
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return false
	}
	_, err := parseURL(prefix[:len(prefix)-len(rest)+end])
	return err == nil
}

func (h *httpAction) request(r *run) (*http.Request, *failure) {
	text, f := r.text("url", h.url)
	if f != nil {
		return nil, f
	}
	u, err := parseURL(text)
	if err != nil {
		return nil, dead("render %v", err)
	}
	var data []byte
	var contentType string
	if h.sendsBody {
		if data, contentType, f = r.body("body", h.body); f != nil {
			return nil, f
		}
	}
	var body io.Reader
	if len(data) > 0 {
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(r.ctx, h.method, u.String(), body)
	if err != nil {
		return nil, dead("make a request: %v", withoutURL(err))
	}
	return req, h.setHeaders(r, req, contentType)
}

func (h *httpAction) setHeaders(r *run, req *http.Request, contentType string) *failure {
	for name, t := range h.headers {
		v, f := r.text("headers."+name, t)
		if f == nil {
			f = headerValueFailure(name, v)
		}
		if f != nil {
			return f
		}
		if name == "Host" {
			if strings.ContainsAny(v, "/ \t@?#") {
				return dead("header Host: its value is not a host")
			}
			req.Host = v
			continue
		}
		req.Header.Set(name, v)
	}
	defaults := map[string]string{
		"Content-Type":       contentType,
		"User-Agent":         h.userAgent,
		idempotencyKeyHeader: headerKey(r.Key),
		hopsHeader:           nextHops(&r.Event),
	}
	for name, v := range trace(&r.Event) {
		defaults[http.CanonicalHeaderKey(name)] = v
	}
	for name, v := range defaults {
		if _, set := h.headers[name]; !set && v != "" && headerValueFailure(name, v) == nil {
			req.Header.Set(name, v)
		}
	}
	return nil
}

// withoutURL drops what net/http puts around an error: the URL, with its query.
func withoutURL(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}
