package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Info is a turn as lists show it.
type Info struct {
	Hash      string
	Key       triggerd.TurnKey
	Thread    string
	State     State
	Attempt   int
	Opened    time.Time
	Finished  time.Time // zero while unfinished
	Since     uint64    // orders the ends of turns, whoever wrote them: the sequence of the entry that said this first
	NotBefore time.Time // failed: the next attempt
	Cause     string
	ReplayOf  string
	Version   string
	Hops      int // of the event
	Result    *triggerd.Result
	openSeq   uint64
}

func infoOf(en *Entry) Info {
	i := Info{
		Hash: en.Key.Hash(), Key: en.Key, Thread: en.Thread, State: en.State, Attempt: en.Attempt, Opened: en.Opened,
		Cause: en.Cause, ReplayOf: en.ReplayOf, Version: en.Version, Hops: en.Hops, Result: en.Result,
		Since: en.since(), openSeq: en.OpenSeq,
	}
	if en.State.Final() {
		i.Finished = en.Time
	}
	if en.NotBefore != nil {
		i.NotBefore = *en.NotBefore
	}
	return i
}

// now is a turn as it stands: an attempt may be under way of which the ledger need not know.
func (e *Engine) now(en *Entry) Info {
	i := infoOf(en)
	if en.State.Final() {
		return i
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.board.turns[i.Hash]; t != nil && t.state == Running {
		i.State, i.Attempt, i.Cause, i.NotBefore, i.Result = Running, t.attempt, "", time.Time{}, nil
	}
	return i
}

// List returns the turns that match, newest first by opening. It reads every turn's newest entry.
func (e *Engine) List(ctx context.Context, match func(*Info) bool) ([]Info, error) {
	var out []Info
	add := func(i Info) {
		if match == nil || match(&i) {
			out = append(out, i)
		}
	}
	open := map[string]Info{} // a turn that goes on meanwhile is met again
	err := e.ledger.scan(ctx, bus.ScanOptions{LastOnly: true}, func(en *Entry) {
		i := e.now(en)
		if !en.State.Final() {
			open[i.Hash] = i
			return
		}
		delete(open, i.Hash)
		add(i)
	})
	if err != nil {
		return nil, fmt.Errorf("list turns: %w", err)
	}
	for _, i := range open {
		add(i)
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Compare(b.openSeq, a.openSeq) })
	return out, nil
}

// Get reads a turn by its hash; nil without an error means that there is none.
func (e *Engine) Get(ctx context.Context, hash string) (*Info, error) {
	en, err := e.ledger.last(ctx, hash)
	if err != nil || en == nil {
		return nil, err
	}
	i := e.now(en)
	return &i, nil
}

// Where is the partition that a turn belongs to. The error is [triggerd.ErrNotFound] when there is no such turn.
func (e *Engine) Where(ctx context.Context, hash string) (Part, error) {
	en, err := e.ledger.last(ctx, hash)
	if err != nil {
		return Part{}, err
	}
	if en == nil {
		return Part{}, fmt.Errorf("turn %s: %w", hash, triggerd.ErrNotFound)
	}
	part, ok := PartOf(en.Subject)
	if !ok {
		return Part{}, fmt.Errorf("turn %s is in no partition that this version knows: %s", hash, en.Subject)
	}
	return part, nil
}

// Find resolves a turn's hash, a unique prefix of it, or its key.
// Errors: [triggerd.ErrNotFound], [triggerd.ErrConflict] when a prefix fits several turns (the error lists some).
func (e *Engine) Find(ctx context.Context, ref string) (string, error) {
	if en, err := e.ledger.last(ctx, ref); err != nil || en != nil {
		return ref, err
	}
	var there []string
	for _, k := range keysLike(ref) { // far cheaper than reading all turns
		en, err := e.ledger.last(ctx, k.Hash())
		if err != nil {
			return "", err
		}
		if en != nil {
			there = append(there, k.Hash())
		}
	}
	if len(there) == 1 {
		return there[0], nil
	}
	fits, err := e.List(ctx, func(i *Info) bool { return strings.HasPrefix(i.Hash, ref) || i.Key.String() == ref })
	switch {
	case err != nil:
		return "", err
	case len(fits) == 0 || ref == "":
		return "", fmt.Errorf("turn %q: %w", ref, triggerd.ErrNotFound)
	case len(fits) > 1:
		names := make([]string, 0, 5)
		for _, i := range fits[:min(len(fits), 5)] {
			names = append(names, i.Hash[:12]+" ("+i.Key.String()+")")
		}
		return "", fmt.Errorf("%w: turn %q fits %d turns: %s", triggerd.ErrConflict, ref, len(fits), strings.Join(names, ", "))
	}
	return fits[0].Hash, nil
}

// keysLike are the keys that are written like ref: an event's id may end like the number of a repetition.
func keysLike(ref string) []triggerd.TurnKey {
	p := strings.SplitN(ref, ":", 3) // names hold no colon, ids may
	if len(p) < 3 {
		return nil
	}
	ks := []triggerd.TurnKey{{Connection: p[0], Trigger: p[1], EventID: p[2]}}
	if at := strings.LastIndexByte(p[2], '#'); at >= 0 {
		if n, err := strconv.Atoi(p[2][at+1:]); err == nil && n > 0 {
			ks = append(ks, triggerd.TurnKey{Connection: p[0], Trigger: p[1], EventID: p[2][:at], Replay: n})
		}
	}
	return slices.DeleteFunc(ks, func(k triggerd.TurnKey) bool { return k.String() != ref })
}

// Detail is everything that is kept of a turn.
type Detail struct {
	Info     // Result is of the last attempt that left one
	Event    triggerd.Event
	Input    any
	HasInput bool
	Output   []byte         // of the last attempt that left some
	History  []HistoryEntry // since it was opened, or as far back as entries are kept
}

// HistoryEntry is one line of a turn's ledger.
type HistoryEntry struct {
	Seq     uint64
	Time    time.Time
	State   State
	Attempt int
	Cause   string
	Daemon  string
	Epoch   uint64
}

// Show reads a turn whole, by its hash. The error is [triggerd.ErrNotFound] when there is none.
func (e *Engine) Show(ctx context.Context, hash string) (*Detail, error) {
	last, w, err := e.read(ctx, hash)
	if err != nil {
		return nil, err
	}
	d := &Detail{Info: e.now(last), Event: w.event, HasInput: w.kind != ""}
	if d.HasInput {
		d.Input = decodeInput(w.input, w.kind, e.opts.FromJSON)
	}
	d.ReplayOf, d.Version = w.replayOf, w.version
	var result *Entry // the last one that an attempt left something in
	err = e.ledger.scan(ctx, bus.ScanOptions{Filter: last.Subject}, func(en *Entry) {
		d.History = append(d.History, HistoryEntry{
			Seq: en.Seq, Time: en.Time, State: en.State, Attempt: en.Attempt, Cause: en.Cause, Daemon: en.Daemon, Epoch: en.Epoch,
		})
		if en.Result != nil {
			result = en
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read turn: %w", err)
	}
	if result != nil {
		d.Result = result.Result
		if d.Output, err = e.output(ctx, result); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// output reads what an attempt has written.
func (e *Engine) output(ctx context.Context, en *Entry) ([]byte, error) {
	if name := en.Parts[partOutput].Blob; name != "" {
		return e.opts.Bus.GetBlob(ctx, name)
	}
	if en.Parts[partOutput].Len == 0 {
		return nil, nil
	}
	whole, err := e.ledger.at(ctx, en.Seq)
	if errors.Is(err, triggerd.ErrNotFound) {
		return nil, nil // it has expired meanwhile
	}
	if err != nil {
		return nil, err
	}
	return whole.body[partOutput], nil
}
