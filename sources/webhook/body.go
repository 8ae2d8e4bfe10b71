package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

const (
	// firstRead bounds the memory that a request gets for its Content-Length alone, before it has sent anything.
	firstRead = 1 << 20
	// drainMax is how much of a refused body is read and thrown away, so that its sender reads the answer and keeps the connection.
	// A longer body costs the connection.
	drainMax = 8 << 20
)

// readBody reads the whole body; if that fails, it has answered and nothing may be stored.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.ContentLength > h.o.MaxBody {
		h.tooLarge(w, r)
		return nil, false
	}
	body, err := read(r.Body, r.ContentLength, h.o.MaxBody)
	switch {
	case err == nil && int64(len(body)) > h.o.MaxBody:
		h.tooLarge(w, r)
	case err == nil:
		return body, true
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.reject("body too slow", nil)
		fail(w, http.StatusRequestTimeout, "the body did not arrive in time")
	default:
		h.reject("body ended early", nil)
		fail(w, http.StatusBadRequest, "the body ended early or is malformed")
	}
	return nil, false
}

// read returns a body of the announced length, or, where that is not known (-1), at most limit+1 bytes of it.
func read(body io.Reader, length, limit int64) ([]byte, error) {
	switch {
	case length == 0:
		return nil, nil
	case length < 0:
		return io.ReadAll(io.LimitReader(body, limit+1))
	case length <= firstRead:
		b := make([]byte, length)
		_, err := io.ReadFull(body, b)
		return b, err
	}
	b := bytes.NewBuffer(make([]byte, 0, firstRead))
	_, err := io.CopyN(b, body, length)
	return b.Bytes(), err
}

func (h *Handler) tooLarge(w http.ResponseWriter, r *http.Request) {
	h.reject("body too large", nil)
	// Who waits for "100 Continue" has not sent the body and need not.
	if r.ContentLength <= drainMax && r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, drainMax) // the answer is the same, however this ends
	}
	fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes, the webhook's max_body", h.o.MaxBody))
}
