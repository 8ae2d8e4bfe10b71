package webhook

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestBearer(t *testing.T) {
	secrets, failing := []string{"old-secret", "new-secret"}, error(nil)
	b := setup(t, func(o *Options) {
		o.Scheme, o.Secrets = Bearer, func() ([]string, error) { return secrets, failing }
	})
	check := func(name string, want int, headers ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			before := b.mem.Calls()
			a := b.post("x", headers...)
			if a.status != want || (b.mem.Calls() > before) != (want == http.StatusAccepted) {
				t.Errorf("answer %+v, want %d", a, want)
			}
			if (a.header.Get("WWW-Authenticate") != "") != (want == http.StatusUnauthorized) {
				t.Errorf("WWW-Authenticate %q", a.header.Get("WWW-Authenticate"))
			}
		})
	}
	check("the first secret", 202, "Authorization: Bearer old-secret")
	check("the second secret, scheme in any case", 202, "Authorization: bEARER new-secret")
	check("spaces around the token", 202, "Authorization: Bearer  new-secret ")
	check("a wrong token", 401, "Authorization: Bearer nope-nope")
	check("a prefix of a secret", 401, "Authorization: Bearer old-secre")
	check("a secret and more", 401, "Authorization: Bearer old-secret1")
	check("no header", 401)
	check("an empty header", 401, "Authorization: ")
	check("an empty token", 401, "Authorization: Bearer ")
	check("a token without a scheme", 401, "Authorization: old-secret")
	check("another scheme", 401, "Authorization: Basic old-secret")
	check("two headers", 401, "Authorization: Bearer old-secret", "Authorization: Bearer old-secret")

	secrets = []string{"rotated-secret", ""}
	check("a secret that was rotated out", 401, "Authorization: Bearer old-secret")
	check("a secret that was rotated in", 202, "Authorization: Bearer rotated-secret")
	check("an empty secret lets nobody in", 401, "Authorization: Bearer ")

	failing = errors.New("read secret file: gone")
	check("secrets that cannot be read", 503, "Authorization: Bearer rotated-secret")

	for _, ev := range b.mem.Events() {
		if _, ok := ev.Headers["authorization"]; ok {
			t.Error("the token is stored with the event")
		}
	}
	for _, s := range []string{"old-secret", "new-secret", "rotated-secret", "nope-nope"} {
		if strings.Contains(b.log.String(), s) {
			t.Errorf("the log holds the token %q", s)
		}
	}
	if !strings.Contains(b.log.String(), "gone") {
		t.Errorf("the log does not say why: %s", b.log)
	}
	if n := b.status.Snapshot().Rejected; n != 0 {
		t.Errorf("%d requests of strangers count as events", n)
	}
}

func TestAuthorizationComesFirst(t *testing.T) {
	b := setup(t, func(o *Options) {
		o.Scheme, o.MaxBody, o.Secrets = Bearer, 4, func() ([]string, error) { return []string{"s"}, nil }
	})
	if a := b.post("12345", "Triggerd-Hops: x"); a.status != http.StatusUnauthorized {
		t.Errorf("a stranger learns more than that he is one: %+v", a)
	}
}
