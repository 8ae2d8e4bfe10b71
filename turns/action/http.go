package action

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/turns"
)

// DefaultUserAgent is sent when the options do not say more.
const DefaultUserAgent = "triggerd"

// HTTPOptions configures an http action. URL, Body and the values of Headers are templates.
type HTTPOptions struct {
	Method       string // "" = POST
	URL          string
	Headers      map[string]string
	Body         *string // nil = the input; nothing for GET and HEAD
	RetryStatus  []int   // retried besides 408, 425, 429 and 5xx; 2xx and 3xx may be listed too
	AllowPrivate bool    // private addresses although the host comes from a template
	MaxResponse  int64   // kept of the response; 0 = DefaultMaxOutput, negative = nothing
	UserAgent    string  // "triggerd/<version>"; "" = DefaultUserAgent
	Secrets      Secrets
	Redact       Redact

	// Alive is asked before each write to a connection, which waits while it is false: another daemon may own the turn then. Nil = always true.
	// It must not block and is called from several goroutines.
	Alive func() bool

	// ConfigureTransport may change the transport before its first use; nil = leave it as it is. Tests trust their own certificates with it.
	ConfigureTransport func(*http.Transport)
}

type httpAction struct {
	base
	method      string
	url         *expr.Template
	headers     map[string]*expr.Template // names as net/http writes them
	body        *expr.Template            // nil = the input
	sendsBody   bool
	retryStatus []int
	maxResponse int64
	userAgent   string
	transport   *http.Transport
	client      *http.Client
}

// NewHTTP compiles an http action. The error names every field that can never work.
//
// Proxies of the environment are not used. Where the host of the URL comes from a template, private, loopback, link-local and
// other addresses that are not public are refused when a connection is made, so that a name cannot come to mean another address
// in between; a host that is written out may be anywhere. A redirect is followed only within scheme, host and port.
//
// The action is an [io.Closer] too: Close lets go of idle connections, which otherwise stay for 90 seconds.
func NewHTTP(o HTTPOptions) (turns.Action, error) {
	h := &httpAction{
		base:   base{secrets: o.Secrets, redact: o.Redact},
		method: strings.ToUpper(o.Method), retryStatus: slices.Clone(o.RetryStatus), maxResponse: o.MaxResponse, userAgent: o.UserAgent,
	}
	if h.method == "" {
		h.method = http.MethodPost
	}
	if h.userAgent == "" {
		h.userAgent = DefaultUserAgent
	}
	if h.maxResponse == 0 {
		h.maxResponse = DefaultMaxOutput
	}
	h.maxResponse = max(h.maxResponse, 0)
	h.sendsBody = o.Body != nil || h.method != http.MethodGet && h.method != http.MethodHead

	errs := []error{methodError(h.method), retryStatusError(o.RetryStatus)}
	var err error
	if h.url, err = h.compile("url", o.URL); err == nil && h.url.Static() {
		_, err = parseURL(h.url.StaticPrefix())
	}
	errs = append(errs, err, h.compileHeaders(o.Headers))
	if o.Body != nil {
		h.body, err = h.compile("body", *o.Body)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h.transport = newTransport(!o.AllowPrivate && !hostIsStatic(h.url))
	if o.Alive != nil {
		fence(h.transport, o.Alive)
	}
	if o.ConfigureTransport != nil {
		o.ConfigureTransport(h.transport)
	}
	h.client = &http.Client{Transport: h.transport, CheckRedirect: checkRedirect}
	return h, nil
}

func methodError(method string) error {
	if headerNameError(method) != nil || method == http.MethodConnect {
		return fmt.Errorf("method: %q cannot be used", method)
	}
	return nil
}

func retryStatusError(statuses []int) error {
	for _, s := range statuses {
		if s < 100 || s > 599 {
			return fmt.Errorf("retry_status: %d is not between 100 and 599", s)
		}
	}
	return nil
}

// framing are the headers that net/http makes from the request itself.
var framing = []string{"Content-Length", "Transfer-Encoding", "Trailer", "Te", "Connection", "Upgrade", "Expect"}

func (h *httpAction) compileHeaders(headers map[string]string) error {
	compiled, err := h.compileMap("headers", headers)
	errs := []error{err}
	h.headers = make(map[string]*expr.Template, len(compiled))
	for name, t := range compiled {
		canonical := http.CanonicalHeaderKey(name)
		if err := headerNameError(name); err != nil {
			errs = append(errs, fmt.Errorf("headers: %w", err))
		}
		if slices.Contains(framing, canonical) || canonical == hopsHeader {
			errs = append(errs, fmt.Errorf("headers.%s: this header is set by triggerd", name))
		}
		if h.headers[canonical] != nil {
			errs = append(errs, fmt.Errorf("headers.%s: given twice, names do not depend on case", name))
		}
		h.headers[canonical] = t
	}
	return errors.Join(errs...)
}

// NeedsRunning implements [turns.Action]: a request ends with the daemon that made it.
func (h *httpAction) NeedsRunning() bool { return false }

// Close implements [io.Closer]. Attempts that run go on, new ones may follow; safe to repeat.
func (h *httpAction) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// Run implements [turns.Action].
func (h *httpAction) Run(ctx context.Context, a *turns.Attempt) triggerd.Outcome {
	return h.attempt(ctx, a, h.call)
}

func (h *httpAction) call(r *run) triggerd.Outcome {
	req, f := h.request(r)
	if f != nil {
		return f.outcome()
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return h.noResponse(r, req, resp, err)
	}
	return h.response(r, resp)
}
