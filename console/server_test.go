package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/console/consoletest"
)

const jsonType = "application/json"

// ask sends one request to h; contentType is set when it is not empty.
func ask(h http.Handler, method, target, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func errorCode(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body struct{ Error, Code string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error == "" {
		t.Fatalf("body %q is no error: %v", w.Body, err)
	}
	return body.Code
}

func TestServerRefuses(t *testing.T) {
	h := console.NewServer(consoletest.Sample(), zerolog.Nop())
	cases := []struct {
		name                      string
		method, target, typ, body string
		status                    int
		code                      string
	}{
		{"an unknown path", "GET", "/api/v1/nope", "", "", 404, "no_route"},
		{"a path of another version", "GET", "/api/v2/events", "", "", 404, "no_route"},
		{"a write to a list", "POST", "/api/v1/events", "", "", 405, "method_not_allowed"},
		{"a read of a change", "GET", "/api/v1/reload", "", "", 405, "method_not_allowed"},
		{"an unknown parameter", "GET", "/api/v1/events?conection=a", "", "", 400, "bad_request"},
		{"a repeated parameter", "GET", "/api/v1/events?type=a&type=b", "", "", 400, "bad_request"},
		{"a bad escape", "GET", "/api/v1/events?type=%zz", "", "", 400, "bad_request"},
		{"a semicolon", "GET", "/api/v1/events?type=a;limit=3", "", "", 400, "bad_request"},
		{"a limit that is no number", "GET", "/api/v1/events?limit=ten", "", "", 400, "bad_request"},
		{"an empty limit", "GET", "/api/v1/turns?limit=", "", "", 400, "bad_request"},
		{"a negative sequence", "GET", "/api/v1/events?after=-1", "", "", 400, "bad_request"},
		{"a missing reference", "GET", "/api/v1/events/show", "", "", 400, "bad_request"},
		{"an empty reference", "GET", "/api/v1/turns/show?ref=", "", "", 400, "bad_request"},
		{"a parameter where none belongs", "POST", "/api/v1/reload?force=1", "", "", 400, "bad_request"},
		{"a body where none belongs", "POST", "/api/v1/reload", jsonType, "{}", 400, "bad_request"},
		{"a body with a cancel", "POST", "/api/v1/turns/cancel?ref=a", jsonType, "{}", 400, "bad_request"},
		{"a body without a type", "POST", "/api/v1/fire", "", `{"trigger":"ship"}`, 415, "unsupported_media_type"},
		{"a form", "POST", "/api/v1/fire", "application/x-www-form-urlencoded", "trigger=ship", 415, "unsupported_media_type"},
		{"an empty body", "POST", "/api/v1/fire", jsonType, "", 400, "bad_request"},
		{"an unknown field", "POST", "/api/v1/fire", jsonType, `{"trigger":"ship","dta":"aGk="}`, 400, "bad_request"},
		{"a wrong type", "POST", "/api/v1/fire", jsonType, `{"trigger":1}`, 400, "bad_request"},
		{"data that is not base64", "POST", "/api/v1/fire", jsonType, `{"trigger":"ship","data":"hi!"}`, 400, "bad_request"},
		{"two documents", "POST", "/api/v1/fire", jsonType, `{"trigger":"ship"} {}`, 400, "bad_request"},
		{"garbage after the document", "POST", "/api/v1/fire", jsonType, `{"trigger":"ship"}]`, 400, "bad_request"},
		{"no trigger", "POST", "/api/v1/fire", jsonType, `{}`, 400, "bad_request"},
		{"data and an event", "POST", "/api/v1/fire", jsonType, `{"trigger":"ship","data":"aGk=","event":"12"}`, 400, "bad_request"},
		{"a pause over the limit", "POST", "/api/v1/triggers/pause?name=ship", jsonType, `{"note":"` + strings.Repeat("x", 65<<10) + `"}`, 413, "too_large"},
		{"an unknown trigger", "POST", "/api/v1/triggers/resume?name=nope", "", "", 404, "not_found"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := ask(h, c.method, c.target, c.typ, c.body)
			if code := errorCode(t, w); w.Code != c.status || code != c.code {
				t.Fatalf("got %d %s (%s), want %d %s", w.Code, code, w.Body, c.status, c.code)
			}
			if got := w.Header().Get("Content-Type"); got != jsonType {
				t.Fatalf("content type %q", got)
			}
		})
	}
	t.Run("a wrong method names the right ones", func(t *testing.T) {
		if allow := ask(h, "PUT", "/api/v1/apps", "", "").Header().Get("Allow"); allow != "DELETE, GET, HEAD, POST" {
			t.Fatalf("Allow: %q", allow)
		}
	})
	t.Run("a page of another origin", func(t *testing.T) {
		r := httptest.NewRequest("POST", "/api/v1/reload", nil)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || errorCode(t, w) != "cross_origin" {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	})
}

func TestServerShapes(t *testing.T) {
	t.Run("an empty list is []", func(t *testing.T) {
		h := console.NewServer(&consoletest.Fake{}, zerolog.Nop())
		for _, path := range []string{"/api/v1/events", "/api/v1/turns", "/api/v1/triggers", "/api/v1/apps"} {
			if w := ask(h, "GET", path, "", ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != "[]" {
				t.Errorf("%s: %d %q", path, w.Code, w.Body)
			}
		}
	})
	t.Run("a list without an element has no null inside", func(t *testing.T) {
		h := console.NewServer(&consoletest.Fake{}, zerolog.Nop())
		w := ask(h, "POST", "/api/v1/reload", "", "")
		if want := `{"changed":false,"connections":[],"triggers":[],"config_version":""}`; strings.TrimSpace(w.Body.String()) != want {
			t.Fatalf("got %s", w.Body)
		}
	})
	t.Run("a payload keeps digits and characters", func(t *testing.T) {
		h := console.NewServer(consoletest.Sample(), zerolog.Nop())
		if w := ask(h, "GET", "/api/v1/events/show?ref=12", "", ""); !strings.Contains(w.Body.String(), `"payload":{"n":9007199254740993,"html":"<b>&"}`) {
			t.Fatalf("got %s", w.Body)
		}
	})
	t.Run("a value that cannot be encoded is a 500", func(t *testing.T) {
		f := consoletest.Sample()
		f.EventList[0].Payload = json.RawMessage("{")
		w := ask(console.NewServer(f, zerolog.Nop()), "GET", "/api/v1/events/show?ref=13", "", "")
		if w.Code != http.StatusInternalServerError || errorCode(t, w) != "internal" {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	})
	t.Run("unavailable asks for a later retry", func(t *testing.T) {
		f := consoletest.Sample()
		f.Err = triggerd.ErrUnavailable
		w := ask(console.NewServer(f, zerolog.Nop()), "POST", "/api/v1/fire", jsonType, `{"trigger":"ship"}`)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Fatalf("got %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
	})
}

func TestHealthAndReadiness(t *testing.T) {
	f := consoletest.Sample()
	down := consoletest.Sample()
	down.Readiness.Ready, down.Readiness.Reasons = false, []string{"store: disk full"}
	admin, adminDown := console.NewServer(f, zerolog.Nop()), console.NewServer(down, zerolog.Nop())
	cases := []struct {
		name, target string
		h            http.Handler
		status       int
		body         string // contained; none of the details when it is short
		details      bool
	}{
		{"health", "/healthz", admin, 200, `"ok"`, false},
		{"health while not ready", "/healthz", adminDown, 200, `"ok"`, false},
		{"ready", "/readyz", admin, 200, `{"ready":true}`, false},
		{"not ready", "/readyz", adminDown, 503, `{"ready":false}`, false},
		{"ready, verbose", "/readyz?verbose", admin, 200, `"address in use"`, true},
		{"not ready, verbose", "/readyz?verbose", adminDown, 503, `"reasons":["store: disk full"]`, true},
		{"public health", "/healthz", console.Public(down), 200, `"ok"`, false},
		{"public ready", "/readyz", console.Public(f), 200, `{"ready":true}`, false},
		{"public is never verbose", "/readyz?verbose", console.Public(down), 503, `{"ready":false}`, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := ask(c.h, "GET", c.target, "", "")
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Fatalf("got %d %s, want %d with %s", w.Code, w.Body, c.status, c.body)
			}
			if got := strings.Contains(w.Body.String(), "v1.2.3"); got != c.details {
				t.Fatalf("details shown: %t, want %t (%s)", got, c.details, w.Body)
			}
		})
	}
	t.Run("public has no API", func(t *testing.T) {
		for _, path := range []string{"/api/v1/events", "/", "/api/v1/reload"} {
			if w := ask(console.Public(f), "GET", path, "", ""); w.Code != http.StatusNotFound {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	})
}

func TestMetricsHandler(t *testing.T) {
	f := consoletest.Sample()
	f.Readiness.Ready, f.Readiness.Reasons = false, []string{"store: disk full"}
	h := console.Metrics(f, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("triggerd_up 1\n")) }))
	for _, c := range []struct {
		method, target string
		status         int
		body           string // the whole of it, "" = any
	}{
		{"GET", "/metrics", 200, "triggerd_up 1\n"},
		{"GET", "/metrics?name=x", 200, "triggerd_up 1\n"},
		{"GET", "/healthz", 200, `{"status":"ok"}` + "\n"},
		{"GET", "/readyz", 503, `{"ready":false}` + "\n"},
		{"GET", "/readyz?verbose", 503, `{"ready":false}` + "\n"},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/healthz", 405, ""},
		{"GET", "/metrics/", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/api/v1/turns", 404, ""},
		{"POST", "/api/v1/reload", 404, ""},
		{"POST", "/hooks/in", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
	} {
		if w := ask(h, c.method, c.target, "", ""); w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s %s: got %d %s", c.method, c.target, w.Code, w.Body)
		}
	}
}

// panicking is a Backend with a bug.
type panicking struct{ console.Backend }

func (panicking) Triggers(context.Context) ([]console.TriggerInfo, error) { panic("secret in a panic") }

func TestServerSurvivesAPanic(t *testing.T) {
	var logged bytes.Buffer
	h := console.NewServer(panicking{consoletest.Sample()}, zerolog.New(&logged))
	w := ask(h, "GET", "/api/v1/triggers", "", "")
	if w.Code != http.StatusInternalServerError || errorCode(t, w) != "internal" {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "secret") || !strings.Contains(logged.String(), "panicking") {
		t.Fatalf("body %s, log %s", w.Body, logged.String())
	}
}

func TestServerLog(t *testing.T) {
	var logged bytes.Buffer
	h := console.NewServer(consoletest.Sample(), zerolog.New(&logged).Level(zerolog.InfoLevel))
	ask(h, "GET", "/api/v1/turns?trigger=ship", "", "")
	if logged.Len() > 0 {
		t.Fatalf("a read is logged at info: %s", logged.String())
	}
	ask(h, "POST", "/api/v1/fire", jsonType, `{"trigger":"ship","data":"cGF5bG9hZA==","id":"someid"}`)
	line := logged.String()
	if !strings.Contains(line, `"path":"/api/v1/fire"`) || !strings.Contains(line, `"status":200`) {
		t.Fatalf("a change is not logged: %q", line)
	}
	if strings.Contains(line, "cGF5bG9hZA") || strings.Contains(line, "payload") || strings.Contains(line, "someid") {
		t.Fatalf("the log holds the request: %s", line)
	}
}
