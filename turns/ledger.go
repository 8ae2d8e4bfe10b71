package turns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/failpoint"
)

// writePause is the wait between tries of an entry that the store did not answer.
const writePause = 200 * time.Millisecond

// ledger reads and writes entries. Every write is conditional on the turn's last entry, so a writer that was overtaken is refused.
type ledger struct {
	bus *bus.Bus
	log zerolog.Logger
}

// loaded is a turn with everything that an attempt needs.
type loaded struct {
	event    triggerd.Event
	meta     []byte // the event without its payload, encoded; nil = not yet
	input    []byte
	kind     string // of input; "" = none
	blobs    [parts]string
	action   string
	version  string
	replayOf string
	torn     bool // something of it cannot be read
}

// bytes is what keeping the turn in memory costs.
func (l *loaded) bytes() int64 {
	n := len(l.event.Payload) + len(l.input) + len(l.event.Cursor) + len(l.meta) + 512
	for k, v := range l.event.Headers {
		n += len(k) + len(v) + 32
	}
	return int64(n)
}

// fill puts the turn whole into e; what does not fit in a message goes to blobs, which are reused where they exist.
func (l *ledger) fill(ctx context.Context, e *Entry, w *loaded) error {
	e.Action, e.Version, e.ReplayOf = w.action, w.version, w.replayOf
	e.Parts[partInput].Kind = w.kind
	if w.meta == nil {
		w.meta = metaOf(&w.event).appendJSON(make([]byte, 0, 512))
	}
	room := l.bus.InlineMax() - len(e.body[partOutput])
	for _, p := range []struct {
		i    int
		data []byte
	}{{partMeta, w.meta}, {partInput, w.input}, {partPayload, w.event.Payload}} {
		if w.blobs[p.i] == "" && len(p.data) <= room {
			e.body[p.i] = p.data
			room -= len(p.data)
			continue
		}
		if w.blobs[p.i] == "" {
			name, err := l.bus.PutBlob(ctx, p.data)
			if err != nil {
				return err
			}
			w.blobs[p.i] = name
		}
		e.Parts[p.i].Blob = w.blobs[p.i]
	}
	return nil
}

// load reads an entry that holds its turn whole. With an error other than [triggerd.ErrUnavailable] it still returns what could be read.
func (l *ledger) load(ctx context.Context, seq uint64) (*loaded, error) {
	e, err := l.at(ctx, seq)
	if err != nil {
		return nil, err
	}
	return l.unpack(ctx, e)
}

// at reads the entry with this sequence, with its body. The error is [triggerd.ErrNotFound] when it is gone.
func (l *ledger) at(ctx context.Context, seq uint64) (*Entry, error) {
	m, err := l.bus.At(ctx, l.bus.Turns, seq)
	if err != nil {
		return nil, err
	}
	return decodeEntry(m.Subject, m.Header, m.Data, m.Sequence)
}

func (l *ledger) unpack(ctx context.Context, e *Entry) (*loaded, error) {
	if !e.whole() {
		return nil, fmt.Errorf("turn entry %d does not hold the event: %w", e.Seq, triggerd.ErrNotFound)
	}
	w := &loaded{kind: e.Parts[partInput].Kind, action: e.Action, version: e.Version, replayOf: e.ReplayOf}
	var got [parts][]byte
	var broken error
	for _, i := range []int{partMeta, partInput, partPayload} {
		p := e.Parts[i]
		switch w.blobs[i] = p.Blob; {
		case p.Blob != "":
			b, err := l.bus.GetBlob(ctx, p.Blob)
			if err != nil {
				broken = err
				continue
			}
			got[i] = b
		case i != partMeta && len(e.body[i]) != p.Len:
			broken = fmt.Errorf("turn entry %d is cut off: %w", e.Seq, triggerd.ErrNotFound)
		default:
			got[i] = e.body[i]
		}
	}
	meta := &eventMeta{Hops: e.Hops}
	w.meta = got[partMeta]
	if err := json.Unmarshal(w.meta, meta); err != nil {
		w.meta = nil
		broken = cmp.Or(broken, fmt.Errorf("turn entry %d: event: %w", e.Seq, err))
	}
	w.input, w.event = got[partInput], meta.event(e.Key, got[partPayload])
	return w, broken
}

// sent is an entry on its way into its turn's ledger.
type sent struct {
	entry   *Entry
	msg     *nats.Msg
	last    uint64 // the sequence that it expects
	pending *bus.Pending
}

// send starts to write the next entry of a turn whose last entry is last.
func (l *ledger) send(subject string, last uint64, e *Entry) (*sent, error) {
	e.Writer = l.bus.NextWriter()
	m, err := e.message(subject)
	if err != nil {
		return nil, err
	}
	bus.Expect(m, subject, last)
	s := &sent{entry: e, msg: m, last: last, pending: l.bus.PublishAsync(m)}
	if e.State.Final() {
		failpoint.Hit(failpoint.EndSent)
	}
	return s, nil
}

// stored blocks until a sent entry is stored, sending it again as long as the store does not answer and ctx lives, and returns its sequence.
// It is not durable before [ledger.sync]. The error is [triggerd.ErrFenced] when somebody else has written in between.
func (l *ledger) stored(ctx context.Context, s *sent) (uint64, error) {
	for began := time.Now(); ; {
		seq, err := s.pending.Wait(ctx)
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, bus.ErrWrongSequence):
			if seq, err = l.refused(ctx, s); err == nil || errors.Is(err, triggerd.ErrFenced) {
				return seq, err
			}
		case errors.Is(err, bus.ErrRetryNow):
		case errors.Is(err, triggerd.ErrUnavailable):
		default:
			return 0, fmt.Errorf("write turn entry: %w", err)
		}
		if !bus.Pause(ctx, writePause) {
			return 0, fmt.Errorf("write turn entry: %w: %w", triggerd.ErrUnavailable, context.Cause(ctx))
		}
		if time.Since(began) > bus.AppendTimeout {
			l.bus.Note(err, "an entry of a turn cannot be stored; trying again")
		}
		s.pending = l.bus.PublishAsync(s.msg)
	}
}

// refused tells an earlier try of our own whose answer was lost from somebody else's entry (design §3, "read refusals carefully").
func (l *ledger) refused(ctx context.Context, s *sent) (uint64, error) {
	last, err := l.bus.Last(ctx, l.bus.Turns, s.msg.Subject)
	switch {
	case err != nil:
		return 0, err
	case last == nil:
		return 0, fmt.Errorf("write turn entry: the turn is gone: %w", triggerd.ErrFenced)
	case last.Header.Get(bus.HeaderWriter) == s.entry.Writer:
		return last.Sequence, nil
	case last.Sequence <= s.last:
		return 0, fmt.Errorf("write turn entry: %w: a replica is behind", triggerd.ErrUnavailable)
	}
	return 0, fmt.Errorf("write turn entry: %w", triggerd.ErrFenced)
}

// write is send, stored and sync: it blocks until the entry is durable or ctx ends. After the end of ctx the entry may be stored or not,
// and nothing can be written to the turn any more: use a context that ends with the engine.
func (l *ledger) write(ctx context.Context, subject string, last uint64, e *Entry) (uint64, error) {
	s, err := l.send(subject, last, e)
	if err != nil {
		return 0, err
	}
	seq, err := l.stored(ctx, s)
	if err != nil {
		return 0, err
	}
	return seq, l.sync(ctx)
}

// sync blocks until what was written is durable, through restarts of a server whose sync failed.
func (l *ledger) sync(ctx context.Context) error {
	for {
		err := l.bus.Sync(ctx)
		if err == nil || !bus.Pause(ctx, writePause) {
			return err
		}
	}
}

// last reads a turn's newest entry, wherever its subject is. Nil means that there is no such turn.
func (l *ledger) last(ctx context.Context, hash string) (*Entry, error) {
	if !validHash(hash) {
		return nil, nil // it may come from a person, and must not become a pattern of subjects
	}
	m, err := l.bus.Last(ctx, l.bus.Turns, l.bus.Names.TurnAnywhere(hash))
	if err != nil || m == nil {
		return nil, err
	}
	return decodeEntry(m.Subject, m.Header, m.Data, m.Sequence)
}

// validHash reports whether s looks like a [triggerd.TurnKey.Hash].
func validHash(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// scan hands entries to f, oldest first, without bodies. What cannot be read is logged and left out: one bad entry must not hide the others.
func (l *ledger) scan(ctx context.Context, o bus.ScanOptions, f func(*Entry)) error {
	o.HeadersOnly = true
	if o.Filter == "" {
		o.Filter = l.bus.Names.AllTurns()
	}
	return l.bus.Scan(ctx, l.bus.Names.Turns(), o, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read turn entry: %w", err)
		}
		if m.Headers().Get(headerTurn) == "" {
			return nil // a marker of the server's
		}
		e, err := decodeEntry(m.Subject(), m.Headers(), nil, meta.Sequence.Stream)
		if err != nil {
			l.log.Error().Err(err).Msg("turn entry cannot be read; leaving it out")
			return nil
		}
		f(e)
		return nil
	})
}
