package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/turns"
)

// Requests that change a turn are for whoever runs its partition: a daemon that gets one passes it on.

// askPatience bounds the wait for the other daemon's answer: a cancelled turn may take its time to end.
const askPatience = 30 * time.Second

// Operations that are passed on.
const (
	opCancel = "cancel"
	opRetry  = "retry"
)

type askRequest struct {
	Op   string `json:"op"`
	Turn string `json:"turn"` // hash
}

type askAnswer struct {
	Turn  string `json:"turn,omitempty"` // hash of the turn that came of it
	Code  string `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

// askCodes are the errors that the asker's callers branch on.
var askCodes = []struct {
	code string
	err  error
}{{"not_found", triggerd.ErrNotFound}, {"conflict", triggerd.ErrConflict}, {"unavailable", triggerd.ErrUnavailable}}

// changeTurn has an operation done by the engine that runs the turn, here or on another daemon, and returns the hash of the turn that came of it.
func (d *Daemon) changeTurn(ctx context.Context, op, hash string) (string, error) {
	if d.share == nil {
		return perform(ctx, d.engine(), op, hash)
	}
	part, err := d.reader.Where(ctx, hash)
	if err != nil {
		return "", err
	}
	if e := d.share.engineOf(part); e != nil {
		return perform(ctx, e, op, hash)
	}
	owner, ok := d.share.table.ownerOf(turnsLease + part.String())
	if !ok || owner.Daemon == d.id {
		return "", fmt.Errorf("%w: nobody runs the turns of partition %s just now; try again", triggerd.ErrUnavailable, part)
	}
	return d.ask(ctx, owner.Daemon, askRequest{Op: op, Turn: hash})
}

func perform(ctx context.Context, e *turns.Engine, op, hash string) (string, error) {
	if op == opCancel {
		return hash, e.Cancel(ctx, hash)
	}
	key, err := e.Retry(ctx, hash)
	return key.Hash(), err
}

func (d *Daemon) ask(ctx context.Context, daemon string, r askRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	m, err := d.bus.NC.RequestWithContext(ctx, d.bus.Names.Daemon(daemon), mustJSON(r))
	if err != nil {
		return "", fmt.Errorf("%w: ask daemon %s, which runs the turn: %w", triggerd.ErrUnavailable, daemon, err)
	}
	var a askAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return "", fmt.Errorf("decode the answer of daemon %s: %w", daemon, err)
	}
	if a.Error == "" {
		return a.Turn, nil
	}
	for _, c := range askCodes {
		if c.code == a.Code {
			return "", &passedOn{message: a.Error, is: c.err}
		}
	}
	return "", errors.New(a.Error)
}

// passedOn is another daemon's error, in its words.
type passedOn struct {
	message string
	is      error
}

func (e *passedOn) Error() string { return e.message }
func (e *passedOn) Unwrap() error { return e.is }

// answer serves what other daemons ask for. The function that it returns ends that and waits for the requests under way.
func (d *Daemon) answer() func() error {
	ctx, stop := context.WithCancel(context.Background())
	var requests sync.WaitGroup
	sub, err := d.bus.NC.Subscribe(d.bus.Names.Daemon(d.id), func(m *nats.Msg) {
		requests.Go(func() {
			var r askRequest
			if json.Unmarshal(m.Data, &r) != nil || r.Op != opCancel && r.Op != opRetry {
				return // not one of ours
			}
			_ = m.Respond(mustJSON(d.answerOne(ctx, r))) // an asker that gets no answer says so
		})
	})
	return func() error {
		stop()
		if err != nil {
			return fmt.Errorf("subscribe to other daemons: %w", err)
		}
		err := sub.Unsubscribe()
		requests.Wait()
		return err
	}
}

func (d *Daemon) answerOne(ctx context.Context, r askRequest) askAnswer {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	part, err := d.reader.Where(ctx, r.Turn)
	var turn string
	if err == nil {
		e := d.share.engineOf(part)
		if e == nil {
			return askAnswer{Code: "unavailable", Error: fmt.Sprintf("partition %s has just changed hands; try again", part)}
		}
		turn, err = perform(ctx, e, r.Op, r.Turn)
	}
	if err == nil {
		return askAnswer{Turn: turn}
	}
	a := askAnswer{Error: err.Error()}
	for _, c := range askCodes {
		if errors.Is(err, c.err) {
			a.Code = c.code
			break
		}
	}
	return a
}
