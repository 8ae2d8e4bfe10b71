package webhook

import (
	"encoding/json"
	"net/http"
)

// retryAfter is in seconds. Most outages of the store are restarts.
const retryAfter = "1"

// accepted answers 202. It is the hot path: the answer is put together by hand where the id needs no escapes.
func accepted(w http.ResponseWriter, id string, duplicate bool) {
	b := make([]byte, 0, len(id)+40)
	b = append(b, `{"event":`...)
	b = appendString(b, id)
	if duplicate {
		b = append(b, `,"duplicate":true}`...)
	} else {
		b = append(b, `,"duplicate":false}`...)
	}
	write(w, http.StatusAccepted, b)
}

func fail(w http.ResponseWriter, status int, message string) {
	b := append([]byte(`{"error":`), quote(message)...)
	write(w, status, append(b, '}'))
}

func failLoop(w http.ResponseWriter, message string) {
	b := append([]byte(`{"error":`), quote(message)...)
	write(w, http.StatusUnprocessableEntity, append(b, `,"cause":"loop"}`...))
}

func retryLater(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", retryAfter)
	fail(w, http.StatusServiceUnavailable, message)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a sender that is gone has nobody to be told
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, quote(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func quote(s string) []byte {
	b, _ := json.Marshal(s) // strings always marshal
	return b
}
