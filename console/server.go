package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// readyTimeout bounds one readiness check, so that a stuck store makes the probe say "not ready" instead of hanging it.
const readyTimeout = 5 * time.Second

// handler answers one request; a returned error becomes the answer. It writes nothing before it can still fail.
type handler func(w http.ResponseWriter, r *http.Request) error

type route struct {
	method, path string
	handle       handler
}

type server struct {
	b       Backend
	log     zerolog.Logger
	maxFire int // MaxFireData, less in tests
}

// NewServer is the admin API with `/healthz` and `/readyz`: whoever reaches it may do everything, so it belongs behind a
// socket that only its owner can open. It is safe for concurrent use and starts nothing.
//
// Changes are logged at info with method, path and status, reads at debug; queries and bodies are not logged.
// `turns/cancel` answers when the turn is final, so the HTTP server around it must not have a write time-out.
func NewServer(b Backend, log zerolog.Logger) http.Handler {
	return (&server{b: b, log: log, maxFire: MaxFireData}).handler()
}

func (s *server) handler() http.Handler {
	mux := newMux([]route{
		{"GET", pathEvents, s.events},
		{"GET", pathEvent, s.event},
		{"GET", pathTurns, s.turns},
		{"GET", pathTurn, s.turn},
		{"POST", pathTurnRetry, s.retryTurn},
		{"POST", pathTurnCancel, s.cancelTurn},
		{"GET", pathExplain, s.explain},
		{"GET", pathTriggers, s.triggers},
		{"POST", pathTriggerPause, s.pauseTrigger},
		{"POST", pathTriggerResume, s.resumeTrigger},
		{"POST", pathFire, s.fire},
		{"POST", pathBackfill, s.backfill},
		{"POST", pathReload, s.reload},
		{"GET", pathDaemons, s.daemons},
		{"GET", pathApps, s.apps},
		{"POST", pathApps, s.addApp},
		{"DELETE", pathApps, s.removeApp},
		{"GET", pathHealth, health},
		{"GET", pathReady, ready(s.b, true)},
	})
	// A page in a browser must not be able to drive the API, should it ever listen where a browser can connect.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(handlerFunc(func(http.ResponseWriter, *http.Request) error {
		return &Error{Status: http.StatusForbidden, Code: codeOrigin, Message: "cross-origin request refused"}
	}))
	return s.observe(guard.Handler(mux))
}

// Public is `/healthz` and `/readyz` for a listener that strangers reach: it tells whether the daemon is ready, never why not,
// nor its version or sources. Every other path is a 404.
func Public(b Backend) http.Handler {
	return newMux([]route{
		{"GET", pathHealth, health},
		{"GET", pathReady, ready(b, false)},
	})
}

// Metrics serves metrics under `GET /metrics`, and what [Public] serves. It is for a listener that a scraper reaches without a token: nothing can be changed or looked
// up through it, and every other path is a 404.
func Metrics(b Backend, metrics http.Handler) http.Handler {
	return newMux([]route{
		{"GET", "/metrics", func(w http.ResponseWriter, r *http.Request) error { metrics.ServeHTTP(w, r); return nil }},
		{"GET", pathHealth, health},
		{"GET", pathReady, ready(b, false)},
	})
}

// newMux routes, and answers unknown paths and methods in JSON as everything else.
func newMux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range routes {
		mux.Handle(rt.method+" "+rt.path, handlerFunc(rt.handle))
		methods[rt.path] = append(methods[rt.path], rt.method)
		if rt.method == http.MethodGet {
			methods[rt.path] = append(methods[rt.path], http.MethodHead)
		}
	}
	for path, allowed := range methods {
		slices.Sort(allowed)
		allow := strings.Join(allowed, ", ")
		mux.Handle(path, handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", allow)
			return &Error{Status: http.StatusMethodNotAllowed, Code: codeMethod, Message: fmt.Sprintf("%s is not a method of %s, use %s", r.Method, path, allow)}
		}))
	}
	mux.Handle("/", handlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		return &Error{Status: http.StatusNotFound, Code: codeNoRoute, Message: "no such path in this version of the API"}
	}))
	return mux
}

// handlerFunc turns a handler's error into its answer.
func handlerFunc(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			writeError(w, err)
		}
	})
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	status, body := encodeError(err)
	if errors.As(err, &e) {
		status, body.Code = e.Status, e.Code
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, body)
}

// observe logs each request once and turns a panic into a 500, so that one bad request does not end the others.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		defer func() {
			p := recover()
			abort := p != nil && (p == http.ErrAbortHandler || rec.wrote)
			if p != nil && p != http.ErrAbortHandler {
				s.log.Error().Str("method", r.Method).Str("path", r.URL.Path).Bytes("stack", debug.Stack()).Msg("admin request panicked")
				if !rec.wrote {
					writeError(rec, errors.New("internal error, see the daemon's log"))
				}
			}
			s.logRequest(r, rec.status, time.Since(start))
			if abort {
				panic(http.ErrAbortHandler) // cut the answer short: the client must not take it for whole
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *server) logRequest(r *http.Request, status int, took time.Duration) {
	ev := s.log.Debug()
	switch {
	case status >= http.StatusInternalServerError && r.URL.Path != pathReady:
		ev = s.log.Warn()
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		ev = s.log.Info()
	}
	ev.Str("method", r.Method).Str("path", r.URL.Path).Int("status", status).Dur("took", took).Msg("admin request")
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.wrote = true
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController and http.MaxBytesReader reach the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// health says that the process answers, and nothing else: a broken store is no reason to kill the daemon.
func health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// ready answers 503 while the daemon is not ready. Only a server with details answers `?verbose` with the whole [Readiness].
func ready(b Backend, details bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		state := b.Ready(ctx)
		status := http.StatusOK
		if !state.Ready {
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "1")
		}
		if !details || !r.URL.Query().Has("verbose") {
			writeJSON(w, status, map[string]bool{"ready": state.Ready})
			return nil
		}
		if state.Reasons == nil {
			state.Reasons = []string{}
		}
		if state.Sources == nil {
			state.Sources = []SourceStatus{}
		}
		writeJSON(w, status, state)
		return nil
	}
}
