package natspush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
)

const (
	submitTimeout = 2 * time.Second // as for webhooks: who asks wants to hear "not now" in time
	// maxSubmits is how many requests are stored at once: enough for one sync of the disk to serve many. More of them wait.
	maxSubmits = 256
	drainWait  = submitTimeout + time.Second
	// submitQueue makes one daemon answer a request where several listen.
	submitQueue = "triggerd"
)

// answer is the reply to a request.
type answer struct {
	Event     string `json:"event,omitempty"`
	Duplicate *bool  `json:"duplicate,omitempty"` // set when the event is stored
	Error     string `json:"error,omitempty"`
	Status    int    `json:"status,omitempty"` // with Error, as for a webhook
}

// submits answers requests, several at a time.
type submits struct {
	source *Source
	rt     sources.Runtime
	fenced context.CancelCauseFunc
	slots  chan struct{}
	busy   sync.WaitGroup
	logs   sources.Limiter
}

// serveSubmits answers requests until stop is called; stop waits for the answers to those that were received. fenced is called with [triggerd.ErrFenced].
func (s *Source) serveSubmits(rt sources.Runtime, fenced context.CancelCauseFunc) (stop func(), err error) {
	q := &submits{source: s, rt: rt, fenced: fenced, slots: make(chan struct{}, maxSubmits)}
	sub, err := s.o.NC.QueueSubscribe(s.o.SubmitPrefix+">", submitQueue, q.receive)
	if err != nil {
		return nil, fmt.Errorf("listen for submits: %w", err)
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := s.o.NC.Flush(); err != nil { // from here on a request finds us
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("listen for submits: %w", err)
	}
	if !sub.IsValid() { // closed before the handler was there to tell
		return nil, fmt.Errorf("listen for submits: %w", nats.ErrConnectionClosed)
	}
	return func() {
		if sub.Drain() != nil {
			_ = sub.Unsubscribe() // not connected: there is nothing to drain
		}
		late := time.NewTimer(drainWait)
		defer late.Stop()
		select {
		case <-closed:
		case <-late.C:
			_ = sub.Unsubscribe()
			<-closed
		}
		q.busy.Wait()
	}, nil
}

// receive waits for a free slot: that holds back the subscription, not the connection.
func (q *submits) receive(m *nats.Msg) {
	q.slots <- struct{}{}
	q.busy.Go(func() {
		defer func() { <-q.slots }()
		reply, err := json.Marshal(q.store(m))
		if err != nil || m.Reply == "" {
			return
		}
		// A requester that does not hear us asks again, and is told of a duplicate.
		_ = m.Respond(reply)
	})
}

func (q *submits) store(m *nats.Msg) answer {
	ev, err := event(strings.TrimPrefix(m.Subject, q.source.o.SubmitPrefix), m.Header, m.Data)
	if err != nil {
		q.rt.Status.Rejected()
		return q.refuse(err)
	}
	ev.ID = cmp.Or(ev.ID, sources.NewID())
	// The end of Run ends the intake, not the requests that it has taken.
	ctx, cancel := context.WithTimeout(context.Background(), submitTimeout)
	defer cancel()
	receipt, err := q.rt.Emit.Emit(ctx, ev)
	if errors.Is(err, triggerd.ErrFenced) {
		q.fenced(err)
	}
	if err != nil {
		return q.refuse(err)
	}
	return answer{Event: ev.ID, Duplicate: &receipt.Duplicate}
}

func (q *submits) refuse(err error) answer {
	status, text := http.StatusInternalServerError, "the event is not stored: internal error"
	switch {
	case errors.Is(err, triggerd.ErrLoop):
		status, text = http.StatusUnprocessableEntity, err.Error()
	case errors.Is(err, triggerd.ErrTooLarge):
		status, text = http.StatusRequestEntityTooLarge, err.Error()
	case errors.Is(err, triggerd.ErrInvalidEvent):
		status, text = http.StatusBadRequest, err.Error()
	case errors.Is(err, triggerd.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		status, text = http.StatusServiceUnavailable, "the event is not stored: the store is unavailable"
	case errors.Is(err, triggerd.ErrFenced):
		status, text = http.StatusServiceUnavailable, "the event is not stored: another daemon has taken over"
	}
	if n, ok := q.logs.Allow(http.StatusText(status)); ok {
		q.rt.Log.Warn().Err(err).Int("status", status).Uint64("suppressed", n).Msg("submitted event not stored")
	}
	return answer{Error: text, Status: status}
}
