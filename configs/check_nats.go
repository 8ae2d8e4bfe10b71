package configs

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

func (c *checker) server() {
	c.listen(path{"server", "listen"}, c.cfg.Server.Listen)
	c.metrics(path{"server", "metrics", "listen"}, c.cfg.Server)
	at := path{"server", "admin", "listen"}
	if !c.known(at) {
		return
	}
	socket, ok := strings.CutPrefix(c.cfg.Server.Admin.Listen, "unix:")
	if !ok || strings.TrimSpace(socket) == "" {
		c.report(at, "wants unix:<path>", "an admin API on TCP is not available yet in this version")
		return
	}
	n, _ := c.root.at(at)
	socket = n.rel(socket)
	if len(socket) > socketLimit {
		c.report(at, "path of the socket has "+strconv.Itoa(len(socket))+" bytes, the limit is "+strconv.Itoa(socketLimit), "")
	}
	c.cfg.Server.Admin.Listen = "unix:" + socket
}

// listen checks "off" or host:port.
func (c *checker) listen(at path, addr string) {
	if !c.known(at) || addr == "off" || addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		c.report(at, "wants host:port or off", "for example 127.0.0.1:8080")
	}
}

// metrics checks the listener for Prometheus. It cannot be the public one: that one is for strangers.
func (c *checker) metrics(at path, s Server) {
	c.listen(at, s.Metrics.Listen)
	if c.known(at) && s.Metrics.Listen == s.Listen && s.Listen != "off" && s.Listen != "" {
		c.report(at, "is the address of server.listen", "for example 127.0.0.1:9464")
	}
}

// externalOnly are keys that mean something for an external server only.
var externalOnly = []string{"creds", "nkey", "token", "tls", "domain"}

func (c *checker) nats() {
	at, n := path{"nats"}, &c.cfg.NATS
	external := c.given(at.key("url"))
	if external && c.given(at.key("embedded")) {
		c.reportKey(at.key("embedded"), "cannot be set together with url", "keep one: the server inside the daemon, or an external one")
	}
	if !external {
		for _, k := range externalOnly {
			if c.given(at.key(k)) {
				c.reportKey(at.key(k), "is for an external server", "set nats.url too, or leave it out")
			}
		}
		if n.Replicas > 1 {
			c.report(at.key("replicas"), "the embedded server is a single one", "replicas need an external cluster: set nats.url")
		}
		c.embedded(at.key("embedded"), &n.Embedded)
		return
	}
	for i, u := range n.URL {
		if err := natsURL(u); err != nil {
			c.report(at.key("url").index(i), err.Error(), "for example nats://nats.example.com:4222")
		}
	}
	c.credentials(at, n)
}

func (c *checker) embedded(at path, e *Embedded) {
	if e.Sync == SyncGroup && runtime.GOOS != "linux" {
		c.report(at.key("sync"), "group needs syncfs(2), which is on Linux only", "use always")
	}
	if c.given(at.key("sync_interval")) && e.Sync != SyncInterval {
		c.reportKey(at.key("sync_interval"), "counts only with sync: interval", "")
	}
	c.listen(at.key("listen"), e.Listen)
}

func (c *checker) credentials(at path, n *NATS) {
	var got []string
	for _, k := range []string{"creds", "nkey", "token"} {
		if c.given(at.key(k)) {
			got = append(got, k)
		}
	}
	if len(got) > 1 {
		c.reportKey(at.key(got[1]), "only one of "+strings.Join(got, ", ")+" can be set", "")
	}
	if strings.Contains(n.Token, "${{") && !secretOnly.MatchString(n.Token) {
		c.report(at.key("token"), "wants a token or one secret", "for example ${{ secrets.nats }}")
	}
	for _, name := range secretNames(n.Token) {
		c.secretExists(at.key("token"), name)
	}
	if c.given(at.key("tls").key("cert")) != c.given(at.key("tls").key("key")) {
		c.report(at.key("tls"), "cert and key belong together", "")
	}
}

// natsURL never quotes the URL: it may hold a password.
func natsURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		return errors.New("wants a nats:// or tls:// URL")
	case u.Hostname() == "":
		return errors.New("URL has no host")
	}
	return nil
}

func (c *checker) history() {
	h, at := &c.cfg.History, path{"history", "turns"}
	if h.Turns >= h.Events {
		return
	}
	if !c.given(at) { // history.events alone was raised
		h.Turns = h.Events
		return
	}
	c.report(at, "is shorter than history.events ("+h.Events.String()+")", "a turn is what keeps its event from running twice")
}

var (
	secretRef  = regexp.MustCompile(`\$\{\{\s*secrets(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[\s*["']([^"']+)["']\s*\])\s*\}\}`)
	secretOnly = regexp.MustCompile(`^\s*` + secretRef.String() + `\s*$`)
)

// secretNames lists the secrets that a text outside of an action names.
func secretNames(s string) []string {
	var names []string
	for _, m := range secretRef.FindAllStringSubmatch(s, -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}

func (c *checker) secrets() {
	at := path{"secrets"}
	c.names(at, sortedNames(c.cfg.Secrets))
	for _, name := range sortedNames(c.cfg.Secrets) {
		s, here := c.cfg.Secrets[name], at.key(name)
		if n, _ := c.root.at(here); n.opaque {
			continue
		}
		if c.exactlyOne(here, []string{"env", "file"}, "a place to come from") != "env" || !c.known(here.key("env")) || c.o.AllowUnset {
			continue
		}
		if v, ok := c.o.Env(s.Env); !ok || v == "" {
			c.report(here.key("env"), "variable "+cut(s.Env, 60)+" is not set", "")
		}
	}
}

// secretExists reports a name that is not in the section secrets.
func (c *checker) secretExists(at path, name string) {
	if _, ok := c.cfg.Secrets[name]; !ok {
		c.report(at, "there is no secret "+strconv.Quote(cut(name, 60)), didYouMean(name, sortedNames(c.cfg.Secrets)))
	}
}
