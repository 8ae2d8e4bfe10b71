package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// acks match the answers of streams to the publishes that wait for them. The client library's asynchronous publish does so too; three are
// made for each event, and its timer, options and JSON decoder for each of them cost more than the message itself.
type acks struct {
	nc     *nats.Conn
	prefix string // of the subjects that answers come back to
	sub    *nats.Subscription
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*Pending // by the last token of the reply subject
}

// errNoAnswer: the message may be stored or not.
var errNoAnswer = errors.New("the stream gave no answer")

// ackCheck is how often answers that are overdue are given up.
const ackCheck = AppendTimeout / 8

func newAcks(nc *nats.Conn) (*acks, error) {
	a := &acks{nc: nc, prefix: nc.NewInbox() + ".", stop: make(chan struct{}), done: make(chan struct{}), waiting: map[uint64]*Pending{}}
	var err error
	if a.sub, err = nc.Subscribe(a.prefix+"*", a.answer); err != nil {
		return nil, err
	}
	// Every publish has at most one answer, so this is bounded by those who wait.
	if err := a.sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	go a.giveUp()
	return a, nil
}

// publish sends m. What becomes of it is told to p.
func (a *acks) publish(m *nats.Msg, p *Pending) {
	a.mu.Lock()
	a.last++
	token := a.last
	a.waiting[token] = p
	a.mu.Unlock()
	reply := make([]byte, 0, 64)
	reply = strconv.AppendUint(append(reply, a.prefix...), token, 36)
	err := a.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: string(reply), Header: m.Header, Data: m.Data})
	if err == nil {
		return
	}
	if p := a.take(token); p != nil {
		p.finish(0, err)
	}
}

func (a *acks) take(token uint64) *Pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.waiting[token]
	delete(a.waiting, token)
	return p
}

func (a *acks) answer(m *nats.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, a.prefix), 36, 64)
	if err != nil {
		return
	}
	if p := a.take(token); p != nil {
		p.finish(readAck(m))
	}
}

// readAck is the sequence of what was stored, or why it was not.
func readAck(m *nats.Msg) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, jetstream.ErrNoStreamResponse
	}
	// {"stream":"NAME", "seq":N} is what the server writes for nearly all of them.
	if _, rest, ok := bytes.Cut(m.Data, []byte(`", "seq":`)); ok && bytes.HasPrefix(m.Data, []byte(`{"stream":"`)) {
		if digits, end := bytes.CutSuffix(rest, []byte("}")); end {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil && seq > 0 {
				return seq, nil
			}
		}
	}
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return 0, jetstream.ErrInvalidJSAck
	case ack.Error != nil:
		return 0, ack.Error
	case ack.Stream == "":
		return 0, jetstream.ErrInvalidJSAck
	}
	return ack.Seq, nil
}

// giveUp ends waits that take too long or whose connection is lost, until close.
func (a *acks) giveUp() {
	defer close(a.done)
	lost := a.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer a.nc.RemoveStatusListener(lost)
	tick := time.NewTicker(ackCheck)
	defer tick.Stop()
	for {
		select {
		case <-a.stop:
			return
		case _, ok := <-lost:
			if !ok {
				lost = nil // the connection is closed for good
			}
			a.fail(nats.ErrDisconnected, 0)
		case <-tick.C:
			a.fail(errNoAnswer, AppendTimeout)
		}
	}
}

// fail ends the waits for what was sent longer than age ago; with 0, all of them.
func (a *acks) fail(err error, age time.Duration) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for token, p := range a.waiting {
		if age == 0 || now.Sub(p.sent) >= age {
			delete(a.waiting, token)
			p.finish(0, err)
		}
	}
}

func (a *acks) close() {
	close(a.stop)
	<-a.done
	a.fail(nats.ErrConnectionClosed, 0)
}

// Pending is a publish whose answer has not been read.
type Pending struct {
	bus    *Bus
	stream string
	sent   time.Time
	done   chan struct{} // closed when seq and err are set
	seq    uint64
	err    error
}

func (p *Pending) finish(seq uint64, err error) {
	p.seq, p.err = seq, err
	close(p.done)
}

// Wait blocks until the stream has answered, for about [AppendTimeout] after the message was sent, and returns the message's sequence.
//
// Errors: [ErrExists], [ErrWrongSequence], [ErrRetryNow], [triggerd.ErrTooLarge]; [triggerd.ErrUnavailable] means that the message
// may or may not be stored: publish it again with the same [HeaderWriter], and compare that header when the answer is a refusal.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	select {
	case <-p.done:
		return p.seq, p.bus.outcome(p.stream, p.sent, p.err)
	case <-ctx.Done():
		return 0, p.bus.outcome(p.stream, p.sent, context.Cause(ctx))
	}
}
