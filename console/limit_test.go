package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// swallow is a Backend that fires whatever it is given.
type swallow struct{ Backend }

func (swallow) Fire(context.Context, FireRequest) (FireResult, error) { return FireResult{}, nil }

func TestFireLimit(t *testing.T) {
	const limit = 1 << 20
	h := (&server{b: swallow{}, log: zerolog.Nop(), maxFire: limit}).handler()
	fire := func(data int, note string) *httptest.ResponseRecorder {
		body, err := json.Marshal(FireRequest{Trigger: "ship", Data: make([]byte, data), ID: note})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, pathFire, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	cases := []struct {
		name   string
		data   int
		id     string
		status int
		names  string
	}{
		{"the limit itself", limit, "", http.StatusOK, ""},
		{"a byte more", limit + 1, "", http.StatusRequestEntityTooLarge, "1048576"},
		{"a body far over it is not read to its end", 4 * limit, "", http.StatusRequestEntityTooLarge, "limit"},
		{"an id does not get round it", 0, strings.Repeat("x", 2*limit), http.StatusRequestEntityTooLarge, "limit"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if w := fire(c.data, c.id); w.Code != c.status || !strings.Contains(w.Body.String(), c.names) {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, c.status)
			}
		})
	}
}
