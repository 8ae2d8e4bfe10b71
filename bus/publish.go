package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
)

// JetStream's error codes that the protocol reads (design §3, "read refusals carefully").
const (
	codeStoreFailed     = 10077
	codeWrongSequence   = 10071
	codeConcurrentWrite = 10164
	codeMessageTooLarge = 10054
	codeHeaderTooLarge  = 10097
	codeNoPeers         = 10005
)

// PublishAsync sends m to its stream and returns at once. Publishes of one goroutine to one stream are stored in the order they were sent.
// The message is not durable before [Pending.Wait] and [Bus.Sync] returned nil.
func (b *Bus) PublishAsync(m *nats.Msg) *Pending {
	p := &Pending{bus: b, stream: b.Names.streamOf(m.Subject), sent: time.Now(), done: make(chan struct{})}
	b.acks.publish(m, p)
	return p
}

// Publish is [Bus.PublishAsync] and [Pending.Wait].
func (b *Bus) Publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	return b.PublishAsync(m).Wait(ctx)
}

// Answered notes how a publish ended that did not go through [Bus.Publish], an atomic batch for example, and returns err as [Pending.Wait] would.
func (b *Bus) Answered(subject string, sent time.Time, err error) error {
	return b.outcome(b.Names.streamOf(subject), sent, err)
}

// outcome classifies err and notes whether the stream answers at all.
func (b *Bus) outcome(stream string, sent time.Time, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		b.health.silence.answered(stream)
		return nil
	case errors.As(err, &api):
		b.health.silence.answered(stream)
		return refusal(api)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("publish: %w", triggerd.ErrTooLarge)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), time.Since(sent) >= AppendTimeout/2:
		// A caller that gave up after a moment says nothing about the stream.
		b.health.silence.unanswered(stream, sent)
	}
	return fmt.Errorf("publish: %w: %w", triggerd.ErrUnavailable, err)
}

func refusal(api *jetstream.APIError) error {
	switch {
	case api.ErrorCode == codeStoreFailed && strings.Contains(api.Description, "maximum messages per subject"):
		return ErrExists
	case api.ErrorCode == codeWrongSequence:
		return ErrWrongSequence
	case api.ErrorCode == codeConcurrentWrite:
		return ErrRetryNow
	case api.ErrorCode == codeMessageTooLarge, api.ErrorCode == codeHeaderTooLarge:
		return fmt.Errorf("publish: %w: %s", triggerd.ErrTooLarge, api.Description)
	}
	return fmt.Errorf("publish: %w: %w", triggerd.ErrUnavailable, api)
}

// Conflict reports whether a conditional write of a key was refused because somebody else has written, or is writing: read it again.
func Conflict(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) && (api.ErrorCode == codeWrongSequence || api.ErrorCode == codeConcurrentWrite)
}

// Last reads the newest message on subject, which may hold wildcards. Nil without an error means that there is none.
// What was acknowledged before the call is seen.
func (b *Bus) Last(ctx context.Context, s jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	var err error
	if b.opts.replicas() > 1 {
		m, err = b.getFromLeader(ctx, s, getRequest{LastFor: subject})
	} else {
		m, err = s.GetLastMsgForSubject(ctx, subject)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last message on %s: %w: %w", subject, triggerd.ErrUnavailable, err)
	}
	return m, nil
}

// At reads the message with this sequence. The error is [triggerd.ErrNotFound] when it is gone.
func (b *Bus) At(ctx context.Context, s jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	var err error
	if seq == 0 { // there is no such sequence, and the server would call the question invalid
		return nil, fmt.Errorf("message 0: %w", triggerd.ErrNotFound)
	}
	if b.opts.replicas() > 1 {
		m, err = b.getFromLeader(ctx, s, getRequest{Seq: seq})
	} else {
		m, err = s.GetMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("message %d: %w", seq, triggerd.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read message %d: %w: %w", seq, triggerd.ErrUnavailable, err)
	}
	return m, nil
}

type getRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// getFromLeader reads a message from the stream's leader. The client library asks any replica, which may lag behind: a writer that reads
// why it was refused could then miss its own write and take it for somebody else's.
func (b *Bus) getFromLeader(ctx context.Context, s jetstream.Stream, req getRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	api := "$JS.API."
	if b.opts.Domain != "" {
		api = "$JS." + b.opts.Domain + ".API."
	}
	reply, err := Insist(ctx, func(ctx context.Context) (*nats.Msg, error) {
		return b.NC.RequestWithContext(ctx, api+"STREAM.MSG.GET."+s.CachedInfo().Config.Name, body)
	})
	if err != nil {
		return nil, err
	}
	var resp getResponse
	if err := json.Unmarshal(reply.Data, &resp); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	if resp.Error != nil {
		if resp.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, jetstream.ErrMsgNotFound
		}
		return nil, resp.Error
	}
	m := &jetstream.RawStreamMsg{Subject: resp.Message.Subject, Sequence: resp.Message.Seq, Data: resp.Message.Data, Time: resp.Message.Time}
	if len(resp.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(resp.Message.Header); err != nil {
			return nil, fmt.Errorf("decode message: %w", err)
		}
	}
	return m, nil
}
