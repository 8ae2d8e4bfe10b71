package action

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/triggerd/triggerd"
)

// Headers that every call and message carries.
const (
	hopsHeader           = "Triggerd-Hops"
	idempotencyKeyHeader = "Idempotency-Key"
)

// nextHops is what an event that this turn causes must carry.
func nextHops(ev *triggerd.Event) string { return strconv.Itoa(ev.Hops + 1) }

// headerKey makes a turn's idempotency key safe in a header, so that two keys never look alike there: everything but printable ASCII,
// '%' itself and a space at either end (which receivers trim) is percent-encoded. One that would be too long for the id of
// the event that it may become ends in the turn's hash instead. Ordinary keys stay as they are.
func headerKey(k triggerd.TurnKey) string {
	key := k.String()
	plain := func(i int) bool {
		c := key[i]
		return c > ' ' && c <= '~' && c != '%' || c == ' ' && i > 0 && i < len(key)-1
	}
	var out strings.Builder
	for i := range len(key) {
		if plain(i) {
			out.WriteByte(key[i])
		} else {
			fmt.Fprintf(&out, "%%%02X", key[i])
		}
	}
	if out.Len() <= triggerd.MaxEventID {
		return out.String()
	}
	hash := "~" + k.Hash()
	return out.String()[:triggerd.MaxEventID-len(hash)] + hash
}

// headerNameError reports why name cannot name a header, in HTTP and in NATS (RFC 9110: a token).
func headerNameError(name string) error {
	if name == "" {
		return fmt.Errorf("a header's name is empty")
	}
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return fmt.Errorf("header name %q: %q is not allowed", name, c)
		}
	}
	return nil
}

// headerValueFailure refuses a value that would end its header or that no peer takes. It does not quote the value.
func headerValueFailure(name, value string) *failure {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return dead("header %s: its value has a control character (%q), which headers cannot hold", name, c)
		}
	}
	return nil
}

// trace is what is handed on of a distributed trace: the event's own headers, where they are well-formed (W3C Trace Context).
func trace(ev *triggerd.Event) map[string]string {
	parent := ev.Headers["traceparent"]
	if !isTraceparent(parent) {
		return nil
	}
	out := map[string]string{"traceparent": parent}
	if state := ev.Headers["tracestate"]; state != "" && len(state) <= 512 && headerValueFailure("tracestate", state) == nil {
		out["tracestate"] = state
	}
	return out
}

func isTraceparent(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) != 4 {
		return false
	}
	for i, n := range []int{2, 32, 16, 2} {
		if len(parts[i]) != n || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}

// lookupFold finds a header that the user has set, whatever its case.
func lookupFold[V any](headers map[string]V, name string) (V, bool) {
	for k, v := range headers {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	var none V
	return none, false
}
