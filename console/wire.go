package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/triggerd/triggerd"
)

// The protocol: JSON over HTTP under /api/v1, one path per command. What a request names (an event, a turn, a trigger, an app)
// travels as a query parameter and never as a part of the path, because references hold '/', ':', '#' and "..", which
// routers clean away.
const (
	pathEvents        = "/api/v1/events"
	pathEvent         = "/api/v1/events/show"
	pathTurns         = "/api/v1/turns"
	pathTurn          = "/api/v1/turns/show"
	pathTurnRetry     = "/api/v1/turns/retry"
	pathTurnCancel    = "/api/v1/turns/cancel"
	pathExplain       = "/api/v1/explain"
	pathTriggers      = "/api/v1/triggers"
	pathTriggerPause  = "/api/v1/triggers/pause"
	pathTriggerResume = "/api/v1/triggers/resume"
	pathFire          = "/api/v1/fire"
	pathBackfill      = "/api/v1/schedules/backfill"
	pathReload        = "/api/v1/reload"
	pathApps          = "/api/v1/apps"
	pathDaemons       = "/api/v1/daemons"
	pathHealth        = "/healthz"
	pathReady         = "/readyz"
)

// MaxFireData is the most that one [FireRequest] may carry, in bytes. It is the largest `max_body` that a configuration
// can ask for; the daemon's own limit on payloads may be lower.
const MaxFireData = 64 << 20

// maxSmallBody bounds the bodies that carry no data, and what a fire's body holds besides its data, in bytes.
const maxSmallBody = 64 << 10

var (
	// ErrUnreachable: nothing answers at the admin API's address, or this user may not connect.
	ErrUnreachable = errors.New("cannot reach the daemon")
	// ErrBadRequest: the request is not one that the API understands; a repeat cannot succeed.
	ErrBadRequest = errors.New("bad request")
	// ErrInvalidConfig: the configuration was refused and the one before it is still in force. A [Backend] wraps its problems with it.
	ErrInvalidConfig = errors.New("the configuration was refused")
)

// errorBody is what every answer other than 2xx holds, `/readyz` excepted.
type errorBody struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// errorCodes gives the errors that callers branch on a name of their own on the wire. The first match counts.
var errorCodes = []struct {
	code   string
	status int
	err    error
}{
	{"not_found", http.StatusNotFound, triggerd.ErrNotFound},
	{"conflict", http.StatusConflict, triggerd.ErrConflict},
	{"invalid_event", http.StatusBadRequest, triggerd.ErrInvalidEvent},
	{"loop", http.StatusBadRequest, triggerd.ErrLoop},
	{"too_large", http.StatusRequestEntityTooLarge, triggerd.ErrTooLarge},
	{"unavailable", http.StatusServiceUnavailable, triggerd.ErrUnavailable},
	{"invalid_config", http.StatusUnprocessableEntity, ErrInvalidConfig},
	{"bad_request", http.StatusBadRequest, ErrBadRequest},
	{"timeout", http.StatusGatewayTimeout, context.DeadlineExceeded},
}

// Codes without a sentinel.
const (
	codeInternal  = "internal"
	codeNoRoute   = "no_route" // not "not_found": the path is unknown, not the thing
	codeMethod    = "method_not_allowed"
	codeMediaType = "unsupported_media_type"
	codeOrigin    = "cross_origin"
)

// encodeError picks the status and code of err.
func encodeError(err error) (int, errorBody) {
	for _, c := range errorCodes {
		if errors.Is(err, c.err) {
			return c.status, errorBody{Error: err.Error(), Code: c.code}
		}
	}
	return http.StatusInternalServerError, errorBody{Error: err.Error(), Code: codeInternal}
}

// Error is a refusal by the daemon, as a [Client] returns it. It unwraps to the sentinel that the daemon's error wrapped.
type Error struct {
	Status  int    // HTTP status
	Code    string // for example "not_found"
	Message string // the daemon's own words
}

// Error is the daemon's message, unchanged.
func (e *Error) Error() string { return e.Message }

// Unwrap is the sentinel behind Code, nil when it has none.
func (e *Error) Unwrap() error {
	for _, c := range errorCodes {
		if c.code == e.Code {
			return c.err
		}
	}
	return nil
}
