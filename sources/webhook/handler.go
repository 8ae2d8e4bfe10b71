// Package webhook takes events in over HTTP: POST /hooks/<connection>.
//
// A request is answered only after its event is stored, so 202 is a promise; every other status means that nothing was stored, or that
// the sender must ask again (503). The body is kept byte for byte, whatever its type.
//
//	202  {"event": id, "duplicate": bool}: stored, now or by an earlier request with the same id
//	400  the request can never become an event: its id, its headers, or an expression of the configuration that cannot read it
//	401  wrong or missing token
//	404  no such webhook
//	405  not a POST
//	413  the body is over max_body
//	422  {"error": ..., "cause": "loop"}: too many turns caused each other
//	503  not stored, or not known to be: send it again after Retry-After seconds, with the same id
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/sources"
)

// Schemes of [Options.Scheme].
const (
	Bearer = "bearer" // "Authorization: Bearer <secret>"
	None   = "none"   // anybody may send
)

// emitTimeout bounds the wait for the store: senders give up after a few seconds, and then nobody hears that they should retry.
// It leaves time for the answer itself, which is promised within 2 s.
const emitTimeout = 1750 * time.Millisecond

// Options configure one webhook.
type Options struct {
	Connection string // present name, for logs
	Scheme     string // Bearer or None

	// Secrets returns the tokens that are accepted now, so that they can be rotated; it is called for each request and must not block.
	// Empty ones open nothing. Needed with Bearer.
	Secrets func() ([]string, error)

	ID   *expr.Program // in scope expr.Request; nil, or one that gives "", = the id that the headers name
	Type *expr.Program // in scope expr.Request; nil, or one that gives "", = the type that the headers name

	MaxBody int64 // bytes; `max_body` in the configuration
	Emit    sources.Emitter
	Log     zerolog.Logger
	Status  *sources.Status // may be nil
}

// Handler receives the requests of one connection. It is safe for concurrent use and keeps nothing between requests.
type Handler struct {
	o    Options
	logs sources.Limiter
}

// New checks o and returns its handler.
func New(o Options) (*Handler, error) {
	switch {
	case o.Scheme != Bearer && o.Scheme != None:
		return nil, fmt.Errorf("verify.scheme: %q is not one of %s, %s", o.Scheme, Bearer, None)
	case o.Scheme == Bearer && o.Secrets == nil:
		return nil, errors.New("verify.secrets: scheme bearer needs at least one secret")
	case o.MaxBody <= 0:
		return nil, fmt.Errorf("max_body: %d bytes let no event in", o.MaxBody)
	case o.Emit == nil:
		return nil, errors.New("webhook needs an emitter")
	}
	o.Log = o.Log.With().Str("connection", o.Connection).Logger()
	return &Handler{o: o}, nil
}

// ServeHTTP stores the event of one request and answers when it is durable, within 2 s of having read the body.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "send events with POST")
		return
	}
	if !h.authorized(w, r) {
		return
	}
	body, ok := h.readBody(w, r)
	if !ok {
		return
	}
	ev, err := h.event(r, body)
	if err != nil {
		// What the error says may quote the request: it goes to its sender alone.
		h.reject("bad request", nil)
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	// A sender that hangs up now changes nothing: the event is whole, and a repeat is a duplicate.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), emitTimeout)
	receipt, err := h.o.Emit.Emit(ctx, ev)
	cancel()
	if err != nil {
		h.refuse(w, err)
		return
	}
	accepted(w, ev.ID, receipt.Duplicate)
}

// refuse answers for an event that was not stored.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, triggerd.ErrTooLarge):
		h.logRefusal("too large", err)
		fail(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, triggerd.ErrLoop):
		h.logRefusal("loop", err)
		failLoop(w, err.Error())
	case errors.Is(err, triggerd.ErrInvalidEvent):
		h.logRefusal("invalid event", nil)
		fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, triggerd.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		h.logFailure("unavailable", err)
		retryLater(w, "the event is not stored: the store is unavailable")
	case errors.Is(err, triggerd.ErrFenced):
		h.logFailure("fenced", err)
		retryLater(w, "the event is not stored: another daemon has taken over")
	default:
		h.logFailure("emit", err)
		fail(w, http.StatusInternalServerError, "the event is not stored: internal error")
	}
}

// reject counts a request that no Emitter saw, and says so in the log.
func (h *Handler) reject(cause string, err error) {
	h.o.Status.Rejected()
	h.logRefusal(cause, err)
}

// logRefusal notes a sender's mistake; err must not quote the request.
func (h *Handler) logRefusal(cause string, err error) {
	if n, ok := h.logs.Allow(cause); ok {
		h.o.Log.Warn().Err(err).Str("cause", cause).Uint64("suppressed", n).Msg("webhook request refused")
	}
}

func (h *Handler) logFailure(cause string, err error) {
	if n, ok := h.logs.Allow(cause); ok {
		h.o.Log.Error().Err(err).Str("cause", cause).Uint64("suppressed", n).Msg("webhook request could not be stored")
	}
}

// event makes the event of a request. The error is for the sender.
func (h *Handler) event(r *http.Request, body []byte) (triggerd.Event, error) {
	now := time.Now().UTC()
	ev := triggerd.Event{
		Time:        now,
		Received:    now,
		ContentType: strings.ToValidUTF8(first(r.Header, "Content-Type"), "\uFFFD"),
		Payload:     body,
		Headers:     keptHeaders(r.Header),
	}
	if s := first(r.Header, "Ce-Time"); s != "" {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
			ev.Time = t.UTC()
		}
	}
	var err error
	if ev.Hops, err = sources.ParseHops(first(r.Header, sources.HopsHeader)); err != nil {
		return ev, err
	}
	var vars *expr.Vars
	if h.o.ID != nil || h.o.Type != nil {
		vars = requestVars(r, &ev)
	}
	if ev.ID, err = h.eventID(r.Header, vars); err != nil {
		return ev, err
	}
	ev.Type, err = h.eventType(r.Header, vars)
	return ev, err
}

func requestVars(r *http.Request, ev *triggerd.Event) *expr.Vars {
	query := make(map[string]string)
	for name, values := range r.URL.Query() {
		query[name] = values[0]
	}
	return expr.NewRequestVars(expr.RequestData{
		Headers: ev.Headers, Query: query, Path: r.URL.Path, Method: r.Method, ContentType: ev.ContentType, Body: ev.Payload,
	}, ev.Received)
}

// eventID is what the configuration or the sender says, else fresh: then each request is an event of its own.
func (h *Handler) eventID(header http.Header, vars *expr.Vars) (string, error) {
	id, err := key("id", h.o.ID, vars)
	if err != nil {
		return "", err
	}
	// The first of these that a sender sets counts, in the form in which net/http keeps their names.
	for _, name := range [...]string{"Idempotency-Key", "Webhook-Id", "X-Github-Delivery", "Ce-Id"} {
		if id == "" {
			id = first(header, name)
		}
	}
	if id == "" {
		return sources.NewID(), nil
	}
	return id, sources.CheckID(id)
}

func (h *Handler) eventType(header http.Header, vars *expr.Vars) (string, error) {
	typ, err := key("type", h.o.Type, vars)
	if err != nil {
		return "", err
	}
	for _, name := range [...]string{"Ce-Type", "X-Github-Event"} {
		if typ == "" {
			typ = first(header, name)
		}
	}
	if typ == "" {
		typ = DefaultType
	}
	return typ, sources.CheckType(typ)
}

// DefaultType is the type of an event whose sender names none.
const DefaultType = "webhook.received"

func key(what string, p *expr.Program, vars *expr.Vars) (string, error) {
	if p == nil {
		return "", nil
	}
	s, err := p.Key(vars)
	if err != nil {
		return "", fmt.Errorf("%w: the webhook's `%s` expression cannot read this request: %w", triggerd.ErrInvalidEvent, what, err)
	}
	return s, nil
}
