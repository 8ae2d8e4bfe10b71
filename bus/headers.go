package bus

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
)

// Message headers that streams share. CloudEvents attributes travel as "ce-" headers beside them.
const (
	HeaderWriter = "Triggerd-Writer" // "<writer id>:<counter>": tells our own retry from somebody else's message
	HeaderCursor = "Triggerd-Cursor" // the source's position, base64
	HeaderBlob   = "Triggerd-Blob"   // names of the blobs that the message needs, separated by commas; the sweep reads it
	HeaderHops   = "Triggerd-Hops"   // turns between this message and the outside world
)

// Headers of JetStream that the client library has no name for.
const (
	HeaderExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	HeaderExpectSeq     = "Nats-Expected-Last-Subject-Sequence"
	HeaderRollup        = "Nats-Rollup"
	HeaderTTL           = "Nats-TTL"
	RollupSubject       = "sub"
	TTLNever            = "never"
)

// SetCursor puts a source's position into h. A nil cursor puts nothing there; an empty one is a position.
func SetCursor(h nats.Header, c triggerd.Cursor) {
	if c != nil {
		h.Set(HeaderCursor, base64.StdEncoding.EncodeToString(c))
	}
}

// CursorOf reads what SetCursor has put into h; nil when h holds no position.
func CursorOf(h nats.Header) (triggerd.Cursor, error) {
	if _, ok := h[HeaderCursor]; !ok {
		return nil, nil
	}
	c, err := base64.StdEncoding.DecodeString(h.Get(HeaderCursor))
	if err != nil {
		return nil, fmt.Errorf("decode position: %w", err)
	}
	return append(triggerd.Cursor{}, c...), nil
}

// Expect makes m conditional: it is stored only if seq is the last sequence on subject (0 = nothing there).
func Expect(m *nats.Msg, subject string, seq uint64) {
	m.Header.Set(HeaderExpectSeq, strconv.FormatUint(seq, 10))
	if subject != m.Subject { // without this header the server looks at the message's own subject
		m.Header.Set(HeaderExpectSubject, subject)
	}
}

// Fence makes a publish fail once a newer owner has written Subject: it names the last sequence that the owner saw there.
// The zero Fence is no condition.
type Fence struct {
	Subject string
	Seq     uint64
}

// Apply puts the condition on m.
func (f Fence) Apply(m *nats.Msg) {
	if f.Subject != "" {
		Expect(m, f.Subject, f.Seq)
	}
}
