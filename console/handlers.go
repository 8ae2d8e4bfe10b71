package console

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/triggerd/triggerd"
)

func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r, "connection", "type", "limit", "after")
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", strconv.Atoi)
	if err != nil {
		return err
	}
	after, err := number(q, "after", func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	if err != nil {
		return err
	}
	list, err := s.b.Events(r.Context(), EventQuery{Connection: q.Get("connection"), Type: q.Get("type"), Limit: limit, After: after})
	return answerList(w, list, err)
}

func (s *server) event(w http.ResponseWriter, r *http.Request) error {
	ref, err := only(r, "ref")
	if err != nil {
		return err
	}
	ev, err := s.b.Event(r.Context(), ref)
	if ev.Turns == nil {
		ev.Turns = []TurnInfo{}
	}
	return answer(w, ev, err)
}

func (s *server) turns(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r, "trigger", "connection", "state", "limit", "after")
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", strconv.Atoi)
	if err != nil {
		return err
	}
	list, err := s.b.Turns(r.Context(), TurnQuery{
		Trigger: q.Get("trigger"), Connection: q.Get("connection"), State: q.Get("state"), Limit: limit, After: q.Get("after"),
	})
	return answerList(w, list, err)
}

func (s *server) turn(w http.ResponseWriter, r *http.Request) error {
	ref, err := only(r, "ref")
	if err != nil {
		return err
	}
	t, err := s.b.Turn(r.Context(), ref)
	if t.History == nil {
		t.History = []TurnEntry{}
	}
	if t.Event.Turns == nil {
		t.Event.Turns = []TurnInfo{}
	}
	return answer(w, t, err)
}

func (s *server) retryTurn(w http.ResponseWriter, r *http.Request) error {
	ref, err := onlyNoBody(r, "ref")
	if err != nil {
		return err
	}
	t, err := s.b.RetryTurn(r.Context(), ref)
	return answer(w, t, err)
}

func (s *server) cancelTurn(w http.ResponseWriter, r *http.Request) error {
	ref, err := onlyNoBody(r, "ref")
	if err != nil {
		return err
	}
	t, err := s.b.CancelTurn(r.Context(), ref)
	return answer(w, t, err)
}

func (s *server) explain(w http.ResponseWriter, r *http.Request) error {
	ref, err := only(r, "event")
	if err != nil {
		return err
	}
	ex, err := s.b.Explain(r.Context(), ref)
	if ex.Verdicts == nil {
		ex.Verdicts = []Verdict{}
	}
	return answer(w, ex, err)
}

func (s *server) triggers(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	list, err := s.b.Triggers(r.Context())
	return answerList(w, list, err)
}

func (s *server) pauseTrigger(w http.ResponseWriter, r *http.Request) error {
	name, err := only(r, "name")
	if err != nil {
		return err
	}
	var req PauseRequest
	if err := readBody(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	t, err := s.b.PauseTrigger(r.Context(), name, req)
	return answer(w, t, err)
}

func (s *server) resumeTrigger(w http.ResponseWriter, r *http.Request) error {
	name, err := onlyNoBody(r, "name")
	if err != nil {
		return err
	}
	t, err := s.b.ResumeTrigger(r.Context(), name)
	return answer(w, t, err)
}

func (s *server) fire(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var req FireRequest
	if err := readBody(w, r, int64(s.maxFire)/3*4+maxSmallBody, &req); err != nil {
		return err
	}
	switch {
	case req.Trigger == "":
		return fmt.Errorf("%w: trigger is missing", ErrBadRequest)
	case len(req.Data) > 0 && req.Event != "":
		return fmt.Errorf("%w: give data or event, not both", ErrBadRequest)
	case len(req.Data) > s.maxFire:
		return fmt.Errorf("%w: the data has %d bytes, the limit is %d", triggerd.ErrTooLarge, len(req.Data), s.maxFire)
	}
	res, err := s.b.Fire(r.Context(), req)
	return answer(w, res, err)
}

func (s *server) backfill(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var req BackfillRequest
	if err := readBody(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	switch {
	case req.Connection == "":
		return fmt.Errorf("%w: connection is missing", ErrBadRequest)
	case req.From.IsZero() || req.To.IsZero():
		return fmt.Errorf("%w: from and to are needed", ErrBadRequest)
	case req.To.Before(req.From):
		return fmt.Errorf("%w: to is before from", ErrBadRequest)
	}
	res, err := s.b.Backfill(r.Context(), req)
	if res.Slots == nil {
		res.Slots = []BackfilledSlot{}
	}
	return answer(w, res, err)
}

func (s *server) reload(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	res, err := s.b.Reload(r.Context())
	if res.Connections == nil {
		res.Connections = []string{}
	}
	if res.Triggers == nil {
		res.Triggers = []string{}
	}
	return answer(w, res, err)
}

func (s *server) daemons(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	list, err := s.b.Daemons(r.Context())
	return answerList(w, list, err)
}

func (s *server) apps(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	list, err := s.b.Apps(r.Context())
	return answerList(w, list, err)
}

func (s *server) addApp(w http.ResponseWriter, r *http.Request) error {
	name, err := onlyNoBody(r, "connection")
	if err != nil {
		return err
	}
	app, err := s.b.AddApp(r.Context(), name)
	return answer(w, app, err)
}

func (s *server) removeApp(w http.ResponseWriter, r *http.Request) error {
	name, err := onlyNoBody(r, "connection")
	if err != nil {
		return err
	}
	app, err := s.b.RemoveApp(r.Context(), name)
	return answer(w, app, err)
}

// parseQuery is strict: a misspelt filter that is silently ignored would select too much.
func parseQuery(r *http.Request, allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: read query: %w", ErrBadRequest, err)
	}
	known := map[string]bool{}
	for _, a := range allowed {
		known[a] = true
	}
	for name, values := range q {
		switch {
		case !known[name]:
			return nil, fmt.Errorf("%w: unknown parameter %q", ErrBadRequest, name)
		case len(values) > 1:
			return nil, fmt.Errorf("%w: parameter %q is given %d times", ErrBadRequest, name, len(values))
		}
	}
	return q, nil
}

// only reads the single, required parameter of a request.
func only(r *http.Request, name string) (string, error) {
	q, err := parseQuery(r, name)
	if err != nil {
		return "", err
	}
	if q.Get(name) == "" {
		return "", fmt.Errorf("%w: parameter %q is missing", ErrBadRequest, name)
	}
	return q.Get(name), nil
}

// onlyNoBody is only for requests that say everything in their parameter.
func onlyNoBody(r *http.Request, name string) (string, error) {
	if err := noBody(r); err != nil {
		return "", err
	}
	return only(r, name)
}

func noBody(r *http.Request) error {
	if n, _ := io.ReadFull(r.Body, make([]byte, 1)); n > 0 {
		return fmt.Errorf("%w: this request takes no body", ErrBadRequest)
	}
	return nil
}

// number reads an optional number; 0 when it is left out.
func number[T int | uint64](q url.Values, name string, parse func(string) (T, error)) (T, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := parse(q.Get(name))
	if err != nil {
		return 0, fmt.Errorf("%w: parameter %q: %q is not a number in range", ErrBadRequest, name, q.Get(name))
	}
	return n, nil
}

// readBody decodes one JSON document without unknown fields into v.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || ct != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: codeMediaType, Message: "the body's content type must be application/json"}
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		// A second value, or anything else after the first, is a mistake of the caller's.
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err == nil {
			err = errors.New("something follows the JSON document")
		}
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fmt.Errorf("%w: the request's body is over the limit of %d bytes", triggerd.ErrTooLarge, limit)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the body is empty")
	}
	return fmt.Errorf("%w: read body: %w", ErrBadRequest, err)
}

func answer[T any](w http.ResponseWriter, v T, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, v)
	return nil
}

// answerList writes element by element: a list of all turns has no bound, and one buffer for it would double the daemon's memory.
func answerList[T any](w http.ResponseWriter, list []T, err error) error {
	if err != nil {
		return err
	}
	setHeaders(w)
	bw := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(bw)
	enc.SetEscapeHTML(false)
	sep := "["
	for i := range list {
		_, _ = bw.WriteString(sep)
		if err := enc.Encode(&list[i]); err != nil {
			panic(http.ErrAbortHandler) // the status is out: cut the connection, so that the client sees an error
		}
		sep = ","
	}
	if len(list) == 0 {
		_, _ = bw.WriteString(sep)
	}
	_, _ = bw.WriteString("]\n")
	_ = bw.Flush() // a client that went away is not our error
	return nil
}

func setHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// writeJSON encodes before it writes, so that a value that cannot be encoded is a clean 500.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		buf.Reset()
		status = http.StatusInternalServerError
		_ = enc.Encode(errorBody{Error: "encode answer: " + err.Error(), Code: codeInternal})
	}
	setHeaders(w)
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes())
}
