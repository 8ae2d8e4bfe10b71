package action

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// newTransport makes the one transport of an action. publicOnly refuses other addresses when it connects.
func newTransport(publicOnly bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if publicOnly {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(address) }
	}
	return &http.Transport{
		Proxy:                  nil, // a proxy would be the one to resolve the name, and no address could be checked
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64, // the default number of turns at once
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// addressError is an address that a templated host may not mean.
type addressError struct {
	addr netip.Addr
	kind string
}

func (e *addressError) Error() string { return fmt.Sprintf("%s is %s", e.addr, e.kind) }

// checkPublic takes the address that is about to be connected to, after name resolution: a name cannot change its meaning any more.
func checkPublic(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &addressError{kind: "not an address"}
	}
	if kind := notPublic(ap.Addr()); kind != "" {
		return &addressError{addr: ap.Addr(), kind: kind}
	}
	return nil
}

// special are the ranges of the IANA special-purpose address registries that the methods of netip.Addr do not know.
var special = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's private address (CGNAT)"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmarking address"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation address"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/96"), "reserved"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a private translated address"},
	{netip.MustParsePrefix("100::/64"), "a discard address"},
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation address"},
	{netip.MustParsePrefix("3fff::/20"), "a documentation address"},
	{netip.MustParsePrefix("5f00::/16"), "a segment routing address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("2001::/32"), "a tunnelled address (Teredo)"}, // ends at an IPv4 address of the sender's choice
}

// Ranges whose addresses carry an IPv4 address, at this byte.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// notPublic says what kind of address a is when it is not one of the public internet.
func notPublic(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsPrivate():
		return "a private address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast():
		return "a multicast address"
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return s.kind
		}
	}
	for _, e := range embedding {
		if e.prefix.Contains(a) {
			b := a.As16()
			return notPublic(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return ""
}
