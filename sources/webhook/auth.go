package webhook

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// authorized reports whether the request may send events; if not, it has answered.
func (h *Handler) authorized(w http.ResponseWriter, r *http.Request) bool {
	if h.o.Scheme == None {
		return true
	}
	secrets, err := h.o.Secrets()
	if err != nil {
		h.logFailure("secrets", err)
		retryLater(w, "the webhook's secrets cannot be read")
		return false
	}
	if token := bearerToken(r.Header); token != "" && anyEqual(token, secrets) {
		return true
	}
	h.logRefusal("wrong or missing token", nil)
	w.Header().Set("WWW-Authenticate", `Bearer realm="triggerd"`)
	fail(w, http.StatusUnauthorized, "the Authorization header needs a valid bearer token")
	return false
}

// bearerToken is "" when there is none. Two Authorization headers are none: proxies and servers disagree on which one counts.
// The scheme's name is compared without regard to case (RFC 9110).
func bearerToken(header http.Header) string {
	values := header["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}

// anyEqual compares hashes, so that the time taken tells neither how much of the token is right nor how long a secret is,
// and always looks at every secret.
func anyEqual(token string, secrets []string) bool {
	got := sha256.Sum256([]byte(token))
	equal := 0
	for _, s := range secrets {
		want := sha256.Sum256([]byte(s))
		if s == "" {
			continue // a secret that was never set opens nothing
		}
		equal |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return equal == 1
}
