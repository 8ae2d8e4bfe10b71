package webhook

import (
	"net/http"
	"strings"

	"github.com/triggerd/triggerd/sources"
)

// dropped are headers that no event keeps: credentials, what concerns one connection only (RFC 9110, 7.6.1), and what the transfer needed.
// Names are in the form in which net/http keeps them.
var dropped = map[string]bool{
	"Authorization": true, "Cookie": true, "Proxy-Authorization": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Accept-Encoding": true,
}

// keptHeaders are the headers that an event shows, as [sources.KeepHeaders] has them. The usual request takes a shorter way to the same result.
func keptHeaders(header http.Header) map[string]string {
	kept := make(map[string]string, len(header))
	hop := header["Connection"]
	size := 0
	for name, values := range header {
		if dropped[name] || len(hop) > 0 && listed(hop, name) {
			continue
		}
		name := strings.ToLower(name)
		value := strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD") // both cost nothing in the usual case
		kept[name] = value
		size += len(name) + len(value)
	}
	if size > sources.MaxHeaders {
		return sources.KeepHeaders(header, func(name string) bool { _, ok := kept[name]; return !ok })
	}
	return kept
}

// listed reports whether a Connection header names this one.
func listed(connection []string, name string) bool {
	for _, value := range connection {
		for item := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(item), name) {
				return true
			}
		}
	}
	return false
}

// first is http.Header.Get for a name that is in canonical form already, without the cost of making sure.
func first(header http.Header, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
