package action

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

// natsConn is a Publisher over a real connection.
type natsConn struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func (c natsConn) Publish(ctx context.Context, m *nats.Msg) error {
	if err := c.nc.PublishMsg(m); err != nil {
		return err
	}
	return c.nc.FlushWithContext(ctx)
}

func (c natsConn) PublishJS(ctx context.Context, m *nats.Msg) error {
	_, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	return err
}

func startNATS(t *testing.T) natsConn {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 64 << 10, NoSigs: true, NoLog: true})
	must(t, err)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	must(t, err)
	t.Cleanup(func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	js, err := jetstream.New(nc)
	must(t, err)
	return natsConn{nc, js}
}

func newPublish(t *testing.T, o PublishOptions) turns.Action {
	t.Helper()
	act, err := NewPublish(o)
	must(t, err)
	return act
}

// TestPublishMessage sends over a real server and looks at what a subscriber gets.
func TestPublishMessage(t *testing.T) {
	conn := startNATS(t)
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tests := []struct {
		name    string
		opts    PublishOptions
		change  func(*turns.Attempt)
		subject string
		data    string
		headers map[string]string // all of them
	}{
		{
			name: "the payload as it is", opts: PublishOptions{Subject: "out.a"}, subject: "out.a", data: `{"id": 9007199254740993, "name": "<Ann>"}`,
			headers: map[string]string{"Nats-Msg-Id": "orders:ship:o-1", "Triggerd-Hops": "3", "Content-Type": "application/json"},
		},
		{
			name:    "templates",
			opts:    PublishOptions{Subject: "out.${{ event.type }}", Data: ptr("n=${{ event.payload.id }}"), Headers: map[string]string{"X-Who": "${{ input.name }}", "content-type": "x/y"}},
			subject: "out.order.created", data: "n=9007199254740993",
			headers: map[string]string{"Nats-Msg-Id": "orders:ship:o-1", "Triggerd-Hops": "3", "content-type": "x/y", "X-Who": "<Ann>"},
		},
		{
			name: "an id of one's own", opts: PublishOptions{Subject: "out.a", Data: ptr(""), Headers: map[string]string{"Nats-Msg-Id": "${{ event.id }}"}}, subject: "out.a",
			headers: map[string]string{"Nats-Msg-Id": "o-1", "Triggerd-Hops": "3"},
		},
		{
			name: "an id that no header holds, and a trace", opts: PublishOptions{Subject: "out.a", Data: ptr("")}, subject: "out.a",
			change: func(a *turns.Attempt) {
				a.Key.EventID = " a\r\nb%\x00é"
				a.Event.Headers = map[string]string{"traceparent": traceparent}
			},
			headers: map[string]string{"Nats-Msg-Id": "orders:ship: a%0D%0Ab%25%00%C3%A9", "Triggerd-Hops": "3", "traceparent": traceparent},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sub, err := conn.nc.SubscribeSync("out.>")
			must(t, err)
			defer func() { must(t, sub.Unsubscribe()) }()
			a := attempt()
			if tt.change != nil {
				tt.change(a)
			}
			tt.opts.Conn = conn
			wantOutcome(t, newPublish(t, tt.opts).Run(t.Context(), a), triggerd.Done, "")
			m, err := sub.NextMsg(10 * time.Second)
			must(t, err)
			got := map[string]string{}
			for k, v := range m.Header {
				got[k] = strings.Join(v, "|")
			}
			if m.Subject != tt.subject || string(m.Data) != tt.data || !maps.Equal(got, tt.headers) {
				t.Errorf("got %s %q %v, want %s %q %v", m.Subject, m.Data, got, tt.subject, tt.data, tt.headers)
			}
		})
	}
}

func TestPublishJetStream(t *testing.T) {
	conn := startNATS(t)
	stream, err := conn.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}, MaxMsgSize: 1000})
	must(t, err)
	act := newPublish(t, PublishOptions{Subject: "out.a", JetStream: true, Conn: conn})

	t.Run("a repeat is stored once", func(t *testing.T) {
		for range 3 {
			wantOutcome(t, act.Run(t.Context(), attempt()), triggerd.Done, "")
		}
		info, err := stream.Info(t.Context())
		must(t, err)
		if info.State.Msgs != 1 {
			t.Errorf("%d messages", info.State.Msgs)
		}
	})
	t.Run("over the stream's limit is dead", func(t *testing.T) {
		a := attempt()
		a.Event.Payload = make([]byte, 2000)
		wantOutcome(t, act.Run(t.Context(), a), triggerd.Dead, "over the limit")
	})
	t.Run("over the server's limit is dead", func(t *testing.T) {
		a := attempt()
		a.Event.Payload = make([]byte, 65<<10)
		wantOutcome(t, act.Run(t.Context(), a), triggerd.Dead, "over the limit")
	})
	t.Run("no stream is retried, with a hint", func(t *testing.T) {
		lost := newPublish(t, PublishOptions{Subject: "nobody.${{ event.id }}", JetStream: true, Conn: conn})
		wantOutcome(t, lost.Run(t.Context(), attempt()), triggerd.Retry, "publish to nobody.o-1: no stream takes this subject; create one")
	})
}

// refusing is a Publisher that fails.
type refusing struct{ err error }

func (r refusing) Publish(ctx context.Context, _ *nats.Msg) error {
	if r.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.err
}

func (r refusing) PublishJS(ctx context.Context, m *nats.Msg) error { return r.Publish(ctx, m) }

func TestPublishFailure(t *testing.T) {
	t.Run("an error is retried", func(t *testing.T) {
		o := newPublish(t, PublishOptions{Subject: "a", Conn: refusing{nats.ErrConnectionClosed}}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Retry, "publish: nats: connection closed")
	})
	t.Run("an end of the context says why", func(t *testing.T) {
		ctx, stop := ending(t)
		go stop(turns.ErrShutdown)
		o := newPublish(t, PublishOptions{Subject: "a", Conn: refusing{}}).Run(ctx, attempt())
		wantOutcome(t, o, triggerd.Retry, turns.ErrShutdown.Error())
	})
	t.Run("a server that does not answer is given up, and retried", func(t *testing.T) {
		act := newPublish(t, PublishOptions{Subject: "a", Conn: refusing{}})
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			wantOutcome(t, act.Run(t.Context(), attempt()), triggerd.Retry, "publish to a: no answer within 10s")
			if took := time.Since(begun); took != sendTimeout {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("a secret stays out of the cause", func(t *testing.T) {
		o := newPublish(t, PublishOptions{
			Subject: "a.${{ secrets.tok }}", JetStream: true, Conn: refusing{nats.ErrNoResponders}, Secrets: secretsOf(map[string]string{"tok": "s3cret-value"}),
		}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Retry, "publish to a.[redacted]: no stream")
	})
	t.Run("a header value that would end the header is dead", func(t *testing.T) {
		o := newPublish(t, PublishOptions{Subject: "a", Headers: map[string]string{"X-A": "${{ 'a\\nb' }}"}, Conn: refusing{errors.New("sent")}}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Dead, "header X-A")
	})
	t.Run("a panic of the connection is dead", func(t *testing.T) {
		o := newPublish(t, PublishOptions{Subject: "a", Conn: panicking{}}).Run(t.Context(), attempt())
		wantOutcome(t, o, triggerd.Dead, "panicked: no connection")
	})
}

type panicking struct{ refusing }

func (panicking) Publish(context.Context, *nats.Msg) error { panic("no connection") }

func TestPublishSubject(t *testing.T) {
	tests := map[string]string{ // "" = fine
		"a": "", "a.b-c_D.1": "", "büro.x": "", "a$.b": "", "x_INBOX.a": "", "triggerd.push.orders.new": "", "triggerd.turnip": "",
		"":          "empty",
		"a b":       "space",
		"a\tb":      "space or a control character",
		"a\nb":      "space or a control character",
		"a\x7fb":    "control character",
		"a\x00":     "control character",
		"a.*":       "wildcard",
		"a.>":       "wildcard",
		"a*b":       "wildcard",
		".a":        "empty token",
		"a.":        "empty token",
		"a..b":      "empty token",
		"$JS.API.x": "$JS is the server's own",
		"$SYS":      "$SYS is the server's own",
		"$KV.x.y":   "$KV is the server's own",
		"_INBOX.x":  "_INBOX is the server's own",
		"_R_.x":     "_R_ is the server's own",
		"a.\xff":    "not valid UTF-8",

		"triggerd.turn.x.1.abc":   "triggerd.turn is triggerd's own",
		"triggerd.turn":           "triggerd.turn is triggerd's own",
		strings.Repeat("a", 1025): "1025 bytes",
	}
	var mu sync.Mutex
	sent := map[string]bool{}
	conn := sending(func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		sent[m.Subject] = true
	})
	act := newPublish(t, PublishOptions{Subject: "${{ event.payload }}", Conn: conn, Reserved: []string{"triggerd.turn", "triggerd.event"}})
	for subject, want := range tests {
		a := attempt()
		a.Event.ContentType, a.Event.Payload = "text/plain", []byte(subject)
		o := act.Run(t.Context(), a)
		switch {
		case want == "" && (o.Verb != triggerd.Done || !sent[subject]):
			t.Errorf("%q: got %s %q", subject, o.Verb, o.Cause)
		case want != "" && (o.Verb != triggerd.Dead || sent[subject]):
			t.Errorf("%q: got %s %q, want dead", subject, o.Verb, o.Cause)
		}
		if subject == "a.\xff" { // bytes: the template itself refuses them
			continue
		}
		if !strings.Contains(o.Cause, want) {
			t.Errorf("%q: cause %q, want %q", subject, o.Cause, want)
		}
		_, err := NewPublish(PublishOptions{Subject: strings.ReplaceAll(subject, "${{", "$${{"), Conn: conn, Reserved: []string{"triggerd.turn"}})
		if (err == nil) != (want == "") {
			t.Errorf("%q as it stands in the file: %v", subject, err)
		}
	}
}

type sending func(*nats.Msg)

func (s sending) Publish(_ context.Context, m *nats.Msg) error {
	s(m)
	return nil
}

func (s sending) PublishJS(ctx context.Context, m *nats.Msg) error { return s.Publish(ctx, m) }

func TestPublishOptionsAreRefused(t *testing.T) {
	conn := refusing{}
	tests := map[string]struct {
		opts PublishOptions
		want string
	}{
		"no connection": {PublishOptions{Subject: "a"}, "no connection"},
		"bad subject":   {PublishOptions{Subject: "a b", Conn: conn}, "subject: it has a space"},
		"bad template":  {PublishOptions{Subject: "a.${{", Conn: conn}, "subject: "},
		"bad data":      {PublishOptions{Subject: "a", Data: ptr("${{"), Conn: conn}, "data: "},
		"bad name":      {PublishOptions{Subject: "a", Headers: map[string]string{"a:b": ""}, Conn: conn}, `header name "a:b"`},
		"bad header":    {PublishOptions{Subject: "a", Headers: map[string]string{"a": "${{"}, Conn: conn}, "headers.a: "},
		"hops":          {PublishOptions{Subject: "a", Headers: map[string]string{"TRIGGERD-HOPS": "0"}, Conn: conn}, "set by triggerd"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewPublish(tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
