//go:build linux

package bus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// credentials is what an app reads from its file.
type credentials struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	InboxPrefix string `json:"inbox_prefix"`
}

func readCredentials(t *testing.T, a bus.App) (c credentials) {
	t.Helper()
	st, err := os.Stat(a.File)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the file of the credentials has mode %v", st.Mode())
	}
	data, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// app is an app's connection.
type app struct {
	*nats.Conn
	violations chan error
	closed     chan struct{}
}

func connect(t *testing.T, c credentials) (*app, error) {
	t.Helper()
	a := &app{violations: make(chan error, 100), closed: make(chan struct{})}
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password), nats.CustomInboxPrefix(c.InboxPrefix), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { a.violations <- err }),
		nats.ClosedHandler(func(*nats.Conn) { close(a.closed) }))
	if err != nil {
		return nil, err
	}
	t.Cleanup(nc.Close)
	a.Conn = nc
	return a, nil
}

func mustConnect(t *testing.T, c credentials) *app {
	t.Helper()
	a, err := connect(t, c)
	if err != nil {
		t.Fatalf("connect as %s: %v", c.User, err)
	}
	return a
}

func addApp(t *testing.T, b *bus.Bus, connection string) credentials {
	t.Helper()
	a, err := b.AddApp(connection)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Enabled || a.Connection != connection || a.URL == "" || a.Subjects != "triggerd.push."+connection+".>" {
		t.Fatalf("app: %+v", a)
	}
	return readCredentials(t, a)
}

func pushStream(t *testing.T, b *bus.Bus, connection string) jetstream.Stream {
	t.Helper()
	s, err := b.EnsurePush(bustest.Context(t), connection, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func count(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(bustest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestAppMayPublishOnItsOwnSubjects(t *testing.T) {
	b := bustest.Open(t, bustest.Listen())
	stream := pushStream(t, b, "orders")
	a := mustConnect(t, addApp(t, b, "orders"))
	js, err := jetstream.New(a.Conn)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(bustest.Context(t), "triggerd.push.orders.created", []byte("{}"), jetstream.WithMsgID("order-1"))
	if err != nil || ack.Stream != b.Names.Push("orders") {
		t.Fatalf("publish: %+v, %v", ack, err)
	}
	if err := a.Publish("triggerd.push.orders.created", []byte("no answer wanted")); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	m, err := b.At(bustest.Context(t), stream, 1)
	if err != nil || m.Subject != "triggerd.push.orders.created" || m.Header.Get("Nats-Msg-Id") != "order-1" {
		t.Fatalf("stored: %+v, %v", m, err)
	}
	if _, err := b.NC.Subscribe("triggerd.submit.orders.>", func(m *nats.Msg) { _ = m.Respond([]byte("stored " + m.Subject)) }); err != nil {
		t.Fatal(err)
	}
	if err := b.NC.Flush(); err != nil { // the subscription is there before somebody asks
		t.Fatal(err)
	}
	if r, err := a.Request("triggerd.submit.orders.created", nil, 5*time.Second); err != nil || string(r.Data) != "stored triggerd.submit.orders.created" {
		t.Fatalf("submit: %v, %v", r, err)
	}
	if n := count(t, stream); n != 2 {
		t.Fatalf("the stream holds %d messages, want 2", n)
	}
	select {
	case err := <-a.violations:
		t.Fatal(err)
	default:
	}
}

func TestAppIsConfined(t *testing.T) {
	b := bustest.Open(t, bustest.Listen())
	orders, others := pushStream(t, b, "orders"), pushStream(t, b, "others")
	cred := addApp(t, b, "orders")
	addApp(t, b, "others")
	mustPublish(t, b, "triggerd.push.others.x")
	mustPublish(t, b, b.Names.Event("github", "0", "a"))
	violates := func(t *testing.T, a *app) {
		t.Helper()
		select {
		case err := <-a.violations:
			if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
				t.Fatalf("error: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("nothing was refused")
		}
	}
	for _, subject := range []string{
		"triggerd.push.others.x", "triggerd.submit.others.x", "triggerd.push.orders", "triggerd.event.github.0.b", "triggerd.owner.github",
		"triggerd.turn.default.1.a", "$KV.triggerd_CONTROL.lease.all", "$JS.API.STREAM.PURGE.triggerd_EVENTS", "$JS.API.STREAM.LIST", "$SYS.REQ.SERVER.PING", "_INBOX.x",
	} {
		t.Run("cannot publish on "+subject, func(t *testing.T) {
			a := mustConnect(t, cred)
			if err := a.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			violates(t, a)
		})
	}
	for _, subject := range []string{">", "_INBOX.>", "_INBOX_others.>", "_TRIGGERD.>", "triggerd.push.orders.>", "triggerd.>", "$JS.>"} {
		t.Run("cannot subscribe to "+subject, func(t *testing.T) {
			a := mustConnect(t, cred)
			if _, err := a.Subscribe(subject, func(*nats.Msg) {}); err != nil {
				t.Fatal(err)
			}
			violates(t, a)
		})
	}
	t.Run("cannot wipe the stream", func(t *testing.T) {
		a := mustConnect(t, cred)
		if _, err := a.Request("triggerd.push.orders.x", []byte("first"), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		for _, rollup := range []string{"all", "sub"} {
			m := nats.NewMsg("triggerd.push.orders.x")
			m.Header.Set("Nats-Rollup", rollup)
			r, err := a.RequestMsg(m, 5*time.Second)
			if err != nil || !strings.Contains(string(r.Data), "error") {
				t.Fatalf("rollup %s: %s, %v", rollup, r.Data, err)
			}
		}
		if n := count(t, orders); n != 1 {
			t.Fatalf("the stream holds %d messages, want the first one", n)
		}
	})
	if n := count(t, others); n != 1 {
		t.Errorf("the other app's stream holds %d messages, want its own", n)
	}
	if n := count(t, b.Events); n != 1 {
		t.Errorf("EVENTS holds %d messages, want 1", n)
	}
}

// The server and the daemon answer to the reply subject that a publish names. It must not become a way to write elsewhere.
func TestAppCannotHaveAnswersStoredElsewhere(t *testing.T) {
	b := bustest.Open(t, bustest.Listen())
	pushStream(t, b, "orders")
	others := pushStream(t, b, "others")
	a := mustConnect(t, addApp(t, b, "orders"))
	addApp(t, b, "others")
	if _, err := b.NC.Subscribe("triggerd.submit.orders.>", func(m *nats.Msg) { _ = m.Respond([]byte("answer")) }); err != nil {
		t.Fatal(err)
	}
	if err := b.NC.Flush(); err != nil { // the subscription is there before somebody asks
		t.Fatal(err)
	}
	for _, subject := range []string{"triggerd.push.orders.x", "triggerd.submit.orders.x"} {
		for _, reply := range []string{
			"triggerd.event.github.0.a", "triggerd.owner.github", "triggerd.cursor.github.0", "triggerd.turn.default.1.a", "triggerd.push.others.x",
			"$KV.triggerd_CONTROL.lease.all",
		} {
			if err := a.PublishRequest(subject, reply, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Request(subject, nil, 5*time.Second); err != nil { // answered after all those before it
			t.Fatal(err)
		}
	}
	control, err := b.JS.Stream(bustest.Context(t), "KV_"+b.Names.Control())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []jetstream.Stream{b.Events, b.Turns, others, control} {
		if n := count(t, s); n != 0 {
			t.Errorf("%s holds %d messages of the app's making", s.CachedInfo().Config.Name, n)
		}
	}
}

func TestWrongCredentialsAreRefused(t *testing.T) {
	b := bustest.Open(t, bustest.Listen())
	c := addApp(t, b, "orders")
	for name, wrong := range map[string]credentials{
		"wrong password":  {URL: c.URL, User: c.User, Password: c.Password + "x"},
		"no password":     {URL: c.URL},
		"unknown user":    {URL: c.URL, User: "nobody", Password: c.Password},
		"the daemon's":    {URL: c.URL, User: "_triggerd", Password: c.Password},
		"the daemon's, 2": {URL: c.URL, User: "triggerd", Password: ""},
	} {
		wrong.InboxPrefix = c.InboxPrefix
		if _, err := connect(t, wrong); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddAppEndsEarlierCredentials(t *testing.T) {
	b := bustest.Open(t, bustest.Listen())
	old := addApp(t, b, "orders")
	a := mustConnect(t, old)
	fresh := addApp(t, b, "orders")
	if fresh.Password == old.Password {
		t.Fatal("the password is the same")
	}
	<-a.closed
	if _, err := connect(t, old); !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("connect with the earlier password: %v", err)
	}
	mustConnect(t, fresh)
	mustPublish(t, b, b.Names.Event("github", "0", "a")) // the daemon's connection is not disturbed
}

func TestRevokedAppStaysOut(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir), bustest.Listen())
	c := addApp(t, b, "orders")
	kept := mustConnect(t, addApp(t, b, "others"))
	a := mustConnect(t, c)
	gone, err := b.RemoveApp("orders")
	if err != nil || gone.Enabled || gone.File != "" {
		t.Fatalf("remove: %+v, %v", gone, err)
	}
	<-a.closed
	if kept.IsClosed() {
		t.Error("another app was disconnected")
	}
	if _, err := b.RemoveApp("orders"); err != nil {
		t.Fatalf("remove again: %v", err)
	}
	out := func(b *bus.Bus) {
		t.Helper()
		if err := b.EnsureApp("orders"); err != nil {
			t.Fatal(err)
		}
		c.URL = b.AppFor("orders").URL
		if _, err := connect(t, c); !errors.Is(err, nats.ErrAuthorization) {
			t.Fatalf("connect after the revocation: %v", err)
		}
	}
	out(b)
	b.Close()
	// A crash in the middle of the revocation leaves the credentials beside the marker.
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "apps", "orders.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	b = bustest.Open(t, bustest.Store(dir), bustest.Listen())
	out(b)
	mustConnect(t, addApp(t, b, "orders")) // added again by hand, it is back
}

func TestCredentialsSurviveReopening(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir), bustest.Listen())
	if err := b.EnsureApp("orders"); err != nil {
		t.Fatal(err)
	}
	before := readCredentials(t, b.AppFor("orders"))
	b.Close()
	b = bustest.Open(t, bustest.Store(dir), bustest.Listen())
	if err := b.EnsureApp("orders"); err != nil {
		t.Fatal(err)
	}
	after := readCredentials(t, b.AppFor("orders"))
	if after.Password != before.Password {
		t.Fatal("the password has changed")
	}
	if after.URL != b.AppFor("orders").URL {
		t.Fatalf("the file names %s, the server is at %s", after.URL, b.AppFor("orders").URL)
	}
	mustConnect(t, after)
}

func TestAppNames(t *testing.T) {
	b := bustest.Open(t)
	for _, name := range []string{"", "../orders", "a.b", "_triggerd", "a b"} {
		if _, err := b.AddApp(name); err == nil {
			t.Errorf("AddApp(%q) was accepted", name)
		}
		if _, err := b.RemoveApp(name); err == nil {
			t.Errorf("RemoveApp(%q) was accepted", name)
		}
	}
}

func TestDamagedCredentialsAreNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "apps"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "apps", "orders.json")
	for _, content := range []string{"{", "{}", fmt.Sprintf(`{"user": %q}`, "orders")} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := bus.Open(bustest.Context(t), bustest.Options(t, bustest.Store(dir))); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("open with %s: %v", content, err)
		}
	}
}

func TestAppsOfABusThatIsClosed(t *testing.T) {
	b := bustest.Open(t)
	b.Close()
	if _, err := b.AddApp("orders"); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("AddApp: %v", err)
	}
}
