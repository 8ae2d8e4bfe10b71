package daemon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/triggerd/triggerd/triggers"
	"github.com/triggerd/triggerd/turns"
)

// startedPayload is the payload of daemon.started.
type startedPayload struct {
	Daemon  string `json:"daemon"`
	Version string `json:"version"`
}

// turnPayload is the payload of turn.done, turn.dead and turn.parked.
type turnPayload struct {
	Turn       string    `json:"turn"` // hash
	Key        string    `json:"key"`
	Trigger    string    `json:"trigger"`
	Connection string    `json:"connection"`
	EventID    string    `json:"event_id"`
	State      string    `json:"state"`
	Attempts   int       `json:"attempts"`
	Cause      string    `json:"cause,omitempty"`
	Opened     time.Time `json:"opened"`
}

// listens reports whether a trigger may match an own event of this type.
func (p *plan) listens(typ string) bool {
	for _, def := range p.defs[ownConnection] {
		if len(def.Events) == 0 {
			return true
		}
		for _, glob := range def.Events {
			if triggers.MatchType(glob, typ) {
				return true
			}
		}
	}
	return false
}

// onFinal counts a turn's end and turns it into an own event. The id is the turn's, so telling it twice stores it once.
func (d *Daemon) onFinal(ctx context.Context, i turns.Info) error {
	if err := d.countFailures(ctx, i); err != nil {
		return err
	}
	var typ string
	switch i.State {
	case turns.Done, turns.Dead, turns.Parked:
		typ = "turn." + string(i.State)
	default:
		return nil
	}
	if !d.plan.Load().listens(typ) {
		return nil // every turn passes here
	}
	return d.announce(ctx, typ, i.Hash, map[string]string{triggers.OwnTriggerHeader: i.Key.Trigger}, turnPayload{
		Turn: i.Hash, Key: i.Key.String(), Trigger: i.Key.Trigger, Connection: i.Key.Connection, EventID: i.Key.EventID,
		State: string(i.State), Attempts: i.Attempt, Cause: i.Cause, Opened: i.Opened,
	}, i.Hops+1)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("own payloads are plain data: " + err.Error())
	}
	return b
}
