package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/turns"
)

// maxSubject is the longest subject, in bytes. A server closes the connection of a client whose protocol line has over 4096 bytes,
// and the connection is shared.
const maxSubject = 1024

// sendTimeout is how long the server may take to answer for one message, whatever the attempt's own limit.
const sendTimeout = 10 * time.Second

// Publisher sends messages; the context always has a deadline. Both methods block until the message is where they say, or ctx ends.
type Publisher interface {
	// Publish returns nil when the server has taken the message in; subscribers may or may not be there.
	Publish(ctx context.Context, m *nats.Msg) error
	// PublishJS returns nil when a stream has stored the message, or has it already under the same Nats-Msg-Id.
	PublishJS(ctx context.Context, m *nats.Msg) error
}

// PublishOptions configures a publish action. Subject, Data and the values of Headers are templates.
type PublishOptions struct {
	Subject   string
	Data      *string // nil = the input
	Headers   map[string]string
	JetStream bool // wait for a stream's acknowledgement
	Secrets   Secrets
	Redact    Redact
	Conn      Publisher

	// Reserved are subjects that may not be published to, with everything below them: triggerd's own, for example "triggerd.turn".
	// Subjects that begin with "$" (the server's own), "_INBOX" or "_R_" are refused in any case.
	Reserved []string
}

type publishAction struct {
	base
	subject   *expr.Template
	data      *expr.Template // nil = the input
	headers   map[string]*expr.Template
	jetStream bool
	conn      Publisher
	reserved  []string
}

// NewPublish compiles a publish action. The error names every field that can never work.
//
// A message carries the turn's idempotency key as Nats-Msg-Id, so that a stream stores it once within its duplicate window,
// and Triggerd-Hops. What is set in Headers takes the place of other defaults.
func NewPublish(o PublishOptions) (turns.Action, error) {
	p := &publishAction{
		base:      base{secrets: o.Secrets, redact: o.Redact},
		jetStream: o.JetStream, conn: o.Conn, reserved: slices.Clone(o.Reserved),
	}
	var errs []error
	var err error
	if p.subject, err = p.compile("subject", o.Subject); err == nil && p.subject.Static() {
		err = p.subjectError(p.subject.StaticPrefix())
	}
	errs = append(errs, err)
	if o.Data != nil {
		p.data, err = p.compile("data", *o.Data)
		errs = append(errs, err)
	}
	p.headers, err = p.compileMap("headers", o.Headers)
	errs = append(errs, err)
	for name := range o.Headers {
		if err := headerNameError(name); err != nil {
			errs = append(errs, fmt.Errorf("headers: %w", err))
		}
		if strings.EqualFold(name, hopsHeader) {
			errs = append(errs, fmt.Errorf("headers.%s: this header is set by triggerd", name))
		}
	}
	if o.Conn == nil {
		errs = append(errs, errors.New("no connection to publish on"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// NeedsRunning implements [turns.Action]: a publish ends with the daemon that made it.
func (p *publishAction) NeedsRunning() bool { return false }

// Run implements [turns.Action].
func (p *publishAction) Run(ctx context.Context, a *turns.Attempt) triggerd.Outcome {
	return p.attempt(ctx, a, p.publish)
}

func (p *publishAction) publish(r *run) triggerd.Outcome {
	m, f := p.message(r)
	if f != nil {
		return f.outcome()
	}
	send := p.conn.Publish
	if p.jetStream {
		send = p.conn.PublishJS
	}
	ctx, cancel := context.WithTimeout(r.ctx, sendTimeout)
	defer cancel()
	if err := send(ctx, m); err != nil {
		return publishFailure(r, m, err).outcome()
	}
	return triggerd.Outcome{Verb: triggerd.Done}
}

func (p *publishAction) message(r *run) (*nats.Msg, *failure) {
	subject, f := r.text("subject", p.subject)
	if f != nil {
		return nil, f
	}
	if !p.subject.Static() { // else it was checked when the action was made
		if err := p.subjectError(subject); err != nil {
			return nil, dead("render %v", err)
		}
	}
	m := nats.NewMsg(subject)
	data, contentType, f := r.body("data", p.data)
	if f != nil {
		return nil, f
	}
	m.Data = data
	for name, t := range p.headers {
		v, f := r.text("headers."+name, t)
		if f == nil {
			f = headerValueFailure(name, v)
		}
		if f != nil {
			return nil, f
		}
		m.Header[name] = []string{v}
	}
	p.setDefault(m, "Content-Type", contentType)
	p.setDefault(m, nats.MsgIdHdr, headerKey(r.Key))
	p.setDefault(m, hopsHeader, nextHops(&r.Event))
	for name, v := range trace(&r.Event) {
		p.setDefault(m, name, v)
	}
	return m, nil
}

// setDefault sets a header that the user has not set.
func (p *publishAction) setDefault(m *nats.Msg, name, v string) {
	if _, set := lookupFold(p.headers, name); !set && v != "" && headerValueFailure(name, v) == nil {
		m.Header[name] = []string{v}
	}
}

// subjectError reports why s cannot be published to. It quotes nothing of s but what is reserved.
func (p *publishAction) subjectError(s string) error {
	switch {
	case s == "":
		return errors.New("subject: it is empty")
	case len(s) > maxSubject:
		return fmt.Errorf("subject: it has %d bytes, the limit is %d", len(s), maxSubject)
	case !utf8.ValidString(s):
		return errors.New("subject: it is not valid UTF-8")
	case strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return errors.New("subject: it has a space or a control character")
	case strings.ContainsAny(s, "*>"):
		return errors.New("subject: it has a wildcard (* or >)")
	case strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, ".."):
		return errors.New("subject: it has an empty token")
	}
	first, _, _ := strings.Cut(s, ".")
	if strings.HasPrefix(first, "$") || first == "_INBOX" || first == "_R_" {
		return fmt.Errorf("subject: %s is the server's own", first)
	}
	for _, own := range p.reserved {
		if rest, ok := strings.CutPrefix(s, own); ok && (rest == "" || rest[0] == '.') {
			return fmt.Errorf("subject: %s is triggerd's own; publish to a push connection's subject to cause an event", own)
		}
	}
	return nil
}

// Refusals of a stream that the same message meets again.
const (
	codeMessageTooLarge jetstream.ErrorCode = 10054 // JSStreamMessageExceedsMaximumErr
	codeHeaderTooLarge  jetstream.ErrorCode = 10097 // JSStreamHeaderExceedsMaximumErr
)

func publishFailure(r *run, m *nats.Msg, err error) *failure {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload),
		errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge):
		return dead("publish %d bytes and their headers: over the limit: %v", len(m.Data), err)
	case r.interrupted() != nil:
		return r.interrupted()
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return retry("publish to %s: no stream takes this subject; create one, or leave jetstream out", m.Subject)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return retry("publish to %s: no answer within %v", m.Subject, sendTimeout)
	}
	return retry("publish: %v", err)
}
