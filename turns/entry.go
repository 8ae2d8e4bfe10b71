package turns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// headerTurn carries an entry's JSON. It is a header so that listing turns need not read their events.
const headerTurn = "Triggerd-Turn"

// headerMax keeps an entry's header below the 64 KiB that the server takes.
const headerMax = 60 << 10

// OutputMax is how much of an action's output stands in the entry itself; with more, all of it goes to a blob as well.
const OutputMax = 64 << 10

// Entry is one line of a turn's ledger. The newest one is the turn's state. The first one holds the turn whole, so that neither running nor
// repeating it depends on anything else; so do some later ones (see expire.go). Names in JSON are short because every turn is stored with two of these.
type Entry struct {
	State     State            `json:"s"`
	Claimed   bool             `json:"cl,omitempty"` // only says that this epoch has taken the turn over
	Undecided bool             `json:"ud,omitempty"` // queued by who does not run it: pauses and overlap are still to be applied
	Queues    bool             `json:"qu,omitempty"` // while undecided: no overlap rule skips it
	Attempt   int              `json:"a,omitempty"`
	Cause     string           `json:"why,omitempty"`
	Time      time.Time        `json:"at"`
	NotBefore *time.Time       `json:"nb,omitempty"` // failed: the next attempt
	FirstTry  *time.Time       `json:"ft,omitempty"`
	Process   *Process         `json:"pr,omitempty"` // running, and after a crash until it is known to be gone
	OnCrash   string           `json:"oc,omitempty"` // running: "park", for a start at which the trigger is configured no more
	Result    *triggerd.Result `json:"res,omitempty"`
	Daemon    string           `json:"d"`
	Epoch     uint64           `json:"ep"`
	Opened    time.Time        `json:"op"`
	OpenSeq   uint64           `json:"os,omitempty"` // the first entry's sequence; 0 in the first entry
	Whole     uint64           `json:"w,omitempty"`  // the sequence of the entry that holds the turn whole; 0 = this one if it does, else OpenSeq
	Since     uint64           `json:"si,omitempty"` // written again: the sequence of the entry that said first what this one says
	Key       triggerd.TurnKey `json:"k"`
	ReplayOf  string           `json:"ro,omitempty"`
	Thread    string           `json:"th,omitempty"`
	Lane      string           `json:"ln,omitempty"`
	Hops      int              `json:"h,omitempty"` // of the event
	Version   string           `json:"v,omitempty"` // configuration that decided
	Action    string           `json:"x,omitempty"` // hash of the trigger's definition when it was opened
	Parts     [parts]part      `json:"p,omitzero"`
	Seq       uint64           `json:"-"`
	Subject   string           `json:"-"`
	Writer    string           `json:"-"`
	body      [parts][]byte
}

// Indexes of the parts of an entry's body.
const (
	partPayload = iota
	partInput
	partOutput
	partMeta // the event without its payload, in entries that hold the turn whole
	parts
)

// part says where a piece of the body is: its length in the message's data, or the blob that holds it.
type part struct {
	Len  int    `json:"l,omitempty"`
	Blob string `json:"b,omitempty"`
	Kind string `json:"k,omitempty"` // input: "json", "text" or "bytes"
}

// eventMeta is the event without its payload.
type eventMeta struct {
	Subscription string            `json:"su,omitempty"`
	Type         string            `json:"t"`
	Time         time.Time         `json:"at,omitzero"` // zero = Received
	Received     time.Time         `json:"rx"`
	ContentType  string            `json:"ct,omitempty"`
	Headers      map[string]string `json:"hd,omitempty"`
	Cursor       triggerd.Cursor   `json:"cu,omitempty"`
	Hops         int               `json:"h,omitempty"`
	Seq          uint64            `json:"q,omitempty"`
	Target       string            `json:"tg,omitempty"`
}

// since is the sequence of the entry that said first what this one says.
func (e *Entry) since() uint64 { return cmp.Or(e.Since, e.Seq) }

// whole reports whether the entry holds the turn whole.
func (e *Entry) whole() bool {
	return e.Parts[partMeta] != part{}
}

func metaOf(ev *triggerd.Event) *eventMeta {
	happened := ev.Time
	if happened.Equal(ev.Received) {
		happened = time.Time{}
	}
	return &eventMeta{
		Subscription: ev.Subscription, Type: ev.Type, Time: happened, Received: ev.Received, ContentType: ev.ContentType,
		Headers: ev.Headers, Cursor: ev.Cursor, Hops: ev.Hops, Seq: ev.Seq, Target: ev.Target,
	}
}

func (m *eventMeta) event(k triggerd.TurnKey, payload []byte) triggerd.Event {
	happened := m.Time
	if happened.IsZero() {
		happened = m.Received
	}
	return triggerd.Event{
		Connection: k.Connection, ID: k.EventID, Subscription: m.Subscription, Type: m.Type, Time: happened, Received: m.Received,
		ContentType: m.ContentType, Payload: payload, Headers: m.Headers, Cursor: m.Cursor, Hops: m.Hops, Seq: m.Seq, Target: m.Target,
	}
}

// message encodes e for its subject. The error is [triggerd.ErrTooLarge] when its header does not fit. Parts that live in blobs are named in the header that the blob sweep reads.
func (e *Entry) message(subject string) (*nats.Msg, error) {
	m := nats.NewMsg(subject)
	var blobs []string
	size := 0
	for i := range e.Parts {
		if e.Parts[i].Blob != "" {
			blobs = append(blobs, e.Parts[i].Blob)
		}
		e.Parts[i].Len = len(e.body[i])
		size += len(e.body[i])
	}
	m.Data = make([]byte, 0, size)
	for _, b := range e.body {
		m.Data = append(m.Data, b...)
	}
	head := e.appendJSON(make([]byte, 0, 512))
	if len(head) > headerMax {
		return nil, fmt.Errorf("encode turn entry: a header of %d bytes: %w", len(head), triggerd.ErrTooLarge)
	}
	m.Header.Set(headerTurn, string(head))
	m.Header.Set(bus.HeaderWriter, e.Writer)
	if len(blobs) > 0 {
		m.Header.Set(bus.HeaderBlob, strings.Join(blobs, ","))
	}
	return m, nil
}

// decodeEntry reads an entry. data may be empty where only headers were asked for. It never panics, and accepts nothing that message
// would not have written for this subject.
func decodeEntry(subject string, h nats.Header, data []byte, seq uint64) (*Entry, error) {
	e := &Entry{}
	if err := json.Unmarshal([]byte(h.Get(headerTurn)), e); err != nil {
		return nil, fmt.Errorf("decode turn entry %d: %w", seq, err)
	}
	e.Seq, e.Subject, e.Writer = seq, subject, h.Get(bus.HeaderWriter)
	if e.OpenSeq == 0 {
		e.OpenSeq = seq
	}
	if !e.State.valid() {
		return nil, fmt.Errorf("decode turn entry %d: unknown state %q", seq, e.State)
	}
	if hash := e.Key.Hash(); !strings.HasSuffix(subject, "."+hash) {
		return nil, fmt.Errorf("decode turn entry %d: it is of another turn, %s", seq, hash)
	}
	if len(data) == 0 {
		return e, nil
	}
	for i, p := range e.Parts {
		if p.Len < 0 || p.Len > len(data) {
			return nil, fmt.Errorf("decode turn entry %d: part %d has %d bytes, %d are left", seq, i, p.Len, len(data))
		}
		e.body[i], data = data[:p.Len:p.Len], data[p.Len:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("decode turn entry %d: %d bytes belong to no part", seq, len(data))
	}
	return e, nil
}

// encodeInput makes an input storable without losing its type; decodeInput is the inverse up to Go's number types.
func encodeInput(v any, toJSON func(any) ([]byte, error)) ([]byte, string, error) {
	switch v := v.(type) {
	case string:
		return []byte(v), "text", nil
	case []byte:
		return v, "bytes", nil
	}
	b, err := toJSON(v)
	if err != nil {
		return nil, "", fmt.Errorf("encode input: %w", err)
	}
	return b, "json", nil
}

func decodeInput(b []byte, kind string, fromJSON func([]byte) any) any {
	switch kind {
	case "text":
		return string(b)
	case "bytes":
		return b
	}
	return fromJSON(b)
}
