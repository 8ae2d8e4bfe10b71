package action

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
)

const (
	// maxRedirects is how many redirects are followed, all within one origin.
	maxRedirects = 5
	// maxRetryAfter caps what a server may ask for.
	maxRetryAfter = 24 * time.Hour
	// maxDrain is how much of a response beyond what is kept is read so that its connection can be used again.
	maxDrain = 64 << 10
)

// checkRedirect keeps credentials, the idempotency key and the body within the origin they were meant for (P36).
func checkRedirect(req *http.Request, via []*http.Request) error {
	if to := origin(req.URL); to != origin(via[0].URL) {
		return dead("redirect from %s to another origin, %s: not followed; write that URL if it is right", origin(via[0].URL), to)
	}
	if len(via) > maxRedirects {
		return dead("more than %d redirects within %s", maxRedirects, origin(req.URL))
	}
	return nil
}

// origin is scheme, host and port, without what may be secret: user, path and query.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" || port == "" {
		return u.Scheme + "://" + host
	}
	return u.Scheme + "://" + host + ":" + port
}

// noResponse is the outcome when there is nothing to go by but an error. resp is there when a redirect was refused.
func (h *httpAction) noResponse(r *run, req *http.Request, resp *http.Response, err error) triggerd.Outcome {
	if f := r.interrupted(); f != nil {
		return f.outcome()
	}
	var f *failure
	var refused *addressError
	switch {
	case errors.As(err, &f):
	case errors.As(err, &refused):
		f = dead("call %s: %v; its host comes from a template, so only public addresses are allowed (see allow_private)", origin(req.URL), refused)
	case strings.Contains(err.Error(), "failed to parse Location header"): // net/http has no type for it, and its text quotes the URL
		f = dead("redirect from %s to a Location that is not a URL", origin(req.URL))
	default:
		f = retry("call %s: %v", origin(req.URL), withoutURL(err))
	}
	o := f.outcome()
	if resp != nil {
		o.Result.Status = resp.StatusCode
	}
	return o
}

// response turns an answer into an outcome. The status decides; a body that breaks off does not change it.
func (h *httpAction) response(r *run, resp *http.Response) triggerd.Outcome {
	var o triggerd.Outcome
	o.Result.Status, o.Result.ContentType = resp.StatusCode, oneLine(resp.Header.Get("Content-Type"), 256)
	head, total, whole := h.read(resp)
	h.keep(&o.Result, head, total, h.maxResponse)
	o.Result.Cut = o.Result.Cut || !whole

	switch s := resp.StatusCode; {
	case slices.Contains(h.retryStatus, s), s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s >= 500:
		o.Verb, o.RetryAfter = triggerd.Retry, retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case s >= 200 && s < 300:
		o.Verb = triggerd.Done
		return o
	default:
		o.Verb = triggerd.Dead
	}
	o.Cause = strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	return o
}

// read takes what is kept and a little more. total is at least what was read, and what the server announced where it did;
// whole is false when the body broke off or goes on beyond what was read.
func (h *httpAction) read(resp *http.Response) (head []byte, total int64, whole bool) {
	defer resp.Body.Close()
	head, err := io.ReadAll(io.LimitReader(resp.Body, h.maxResponse+margin))
	if err != nil {
		return head, int64(len(head)), false
	}
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrain))
	total = int64(len(head)) + n
	if err != nil || n == maxDrain {
		if resp.Request.Method != http.MethodHead {
			total = max(total, resp.ContentLength)
		}
		return head, total, false
	}
	return head, total, true
}

// retryAfter reads a Retry-After header: seconds or a date (RFC 9110). Anything else, and what lies in the past, is 0.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
