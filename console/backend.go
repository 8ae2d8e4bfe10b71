// Package console is the admin API: the versioned JSON that the commands speak, served on a unix socket, and the client for it.
package console

import (
	"context"
	"encoding/json"
	"time"
)

// Backend answers the admin API. Errors: [triggerd.ErrNotFound], [triggerd.ErrConflict], [triggerd.ErrInvalidEvent],
// [triggerd.ErrTooLarge] and [triggerd.ErrUnavailable] have statuses of their own (404, 409, 400, 413, 503); anything else is a 500.
// A reference to an event is its sequence, "<connection>/<id>" or a unique prefix of that or of the id; to a turn, its hash, a unique prefix of it, or its key.
// A prefix that fits several things is [triggerd.ErrConflict], and the error lists some of them.
type Backend interface {
	Events(ctx context.Context, q EventQuery) ([]EventInfo, error) // newest first
	Event(ctx context.Context, ref string) (EventDetail, error)
	Turns(ctx context.Context, q TurnQuery) ([]TurnInfo, error) // newest first
	Turn(ctx context.Context, ref string) (TurnDetail, error)
	RetryTurn(ctx context.Context, ref string) (TurnInfo, error)  // the new turn
	CancelTurn(ctx context.Context, ref string) (TurnInfo, error) // returns when the turn is final, or ctx ends
	Explain(ctx context.Context, eventRef string) (Explanation, error)
	Triggers(ctx context.Context) ([]TriggerInfo, error)
	PauseTrigger(ctx context.Context, name string, p PauseRequest) (TriggerInfo, error)
	ResumeTrigger(ctx context.Context, name string) (TriggerInfo, error)
	Fire(ctx context.Context, r FireRequest) (FireResult, error)
	Backfill(ctx context.Context, r BackfillRequest) (BackfillResult, error) // blocks until every event is stored; safe to repeat without Again
	Reload(ctx context.Context) (ReloadResult, error)
	Apps(ctx context.Context) ([]AppInfo, error)
	AddApp(ctx context.Context, connection string) (AppInfo, error)    // safe to repeat: a second call changes the password
	RemoveApp(ctx context.Context, connection string) (AppInfo, error) // the app's connections are closed
	Daemons(ctx context.Context) ([]DaemonInfo, error)
	Ready(ctx context.Context) Readiness
}

// DaemonInfo is a row of `daemons list`.
type DaemonInfo struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Owner   bool      `json:"owner"`       // it owns some of the work; one that does not is a standby
	Self    bool      `json:"self"`        // the daemon that answers
	Age     float64   `json:"age_seconds"` // since its heartbeat was last heard, one comes each second

	Labels      map[string]string `json:"labels,omitempty"`
	Config      string            `json:"config_version"` // that it runs with
	Generation  int               `json:"generation,omitempty"`
	Connections []string          `json:"connections"`        // whose inboxes and sources it runs
	Partitions  int               `json:"partitions"`         // of turns that it owns, of 32 in each pool
	Starting    int               `json:"starting,omitempty"` // how many of its connections and partitions it is still taking over; of others as of their heartbeat
	History     bool              `json:"history,omitempty"`  // it bounds the history
	Dead        bool              `json:"dead,omitempty"`     // its heartbeat was missed, its work was taken over
	Leaving     bool              `json:"leaving,omitempty"`  // it is stopping
}

// EventQuery selects events.
type EventQuery struct {
	Connection string
	Type       string // glob as in a trigger's `event`
	Limit      int    // 0 = 50
	After      uint64 // only sequences below it: the page after the one that ended there
}

// EventInfo is a row of `events list`.
type EventInfo struct {
	Seq        uint64    `json:"seq"`
	Connection string    `json:"connection"`
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	Time       time.Time `json:"time"`
	Received   time.Time `json:"received"`
	Bytes      int64     `json:"bytes"`
}

// EventDetail is `events show`. Exactly one of Payload, Text and Base64 is set, unless the payload is empty.
type EventDetail struct {
	EventInfo
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Cursor      *string           `json:"cursor,omitempty"`
	Hops        int               `json:"hops,omitempty"`
	Payload     json.RawMessage   `json:"payload,omitempty"` // a JSON body as it was received, but for the white space between its tokens
	Text        *string           `json:"text,omitempty"`
	Base64      []byte            `json:"base64,omitempty"`
	Turns       []TurnInfo        `json:"turns"` // the turns it opened
}

// TurnQuery selects turns.
type TurnQuery struct {
	Trigger    string
	Connection string
	State      string
	Limit      int    // 0 = 50; negative = all
	After      string // a turn's hash: the page after the one that ended there
}

// TurnInfo is a row of `turns list`.
type TurnInfo struct {
	Hash       string     `json:"hash"`
	Key        string     `json:"key"`
	Connection string     `json:"connection"`
	Trigger    string     `json:"trigger"`
	EventID    string     `json:"event_id"`
	Thread     string     `json:"thread"`
	State      string     `json:"state"`
	Attempt    int        `json:"attempt"`
	Opened     time.Time  `json:"opened"`
	Finished   *time.Time `json:"finished"`
	NotBefore  *time.Time `json:"not_before,omitempty"` // when a turn in backoff is tried again
	Error      string     `json:"error,omitempty"`
	ReplayOf   string     `json:"replay_of,omitempty"`
	Outcome    *Outcome   `json:"outcome,omitempty"`
}

// Outcome is what is recorded of a turn's last attempt.
type Outcome struct {
	ExitCode    *int  `json:"exit_code,omitempty"`
	Status      int   `json:"status,omitempty"`
	OutputBytes int64 `json:"output_bytes"`
	OutputCut   bool  `json:"output_cut,omitempty"`
}

// TurnDetail is `turns show`.
type TurnDetail struct {
	TurnInfo
	Event   EventDetail `json:"event"` // from the turn itself: it is there after the event was pruned
	Input   any         `json:"input,omitempty"`
	Output  string      `json:"output,omitempty"` // invalid UTF-8 is replaced
	History []TurnEntry `json:"history"`
}

// TurnEntry is one entry of a turn's ledger.
type TurnEntry struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	State   string    `json:"state"`
	Attempt int       `json:"attempt,omitempty"`
	Cause   string    `json:"cause,omitempty"`
	Daemon  string    `json:"daemon,omitempty"`
	Epoch   uint64    `json:"epoch,omitempty"`
}

// Explanation is `explain`: a verdict for every trigger of the event's connection.
type Explanation struct {
	Event    EventInfo `json:"event"`
	Version  string    `json:"config_version"` // the configuration that decided
	Verdicts []Verdict `json:"verdicts"`
}

// Verdict is one trigger's answer to one event.
type Verdict struct {
	Trigger string    `json:"trigger"`
	Verdict string    `json:"verdict"` // matched, filtered, error, pending
	Reason  string    `json:"reason"`
	Turn    *TurnInfo `json:"turn,omitempty"`
}

// TriggerInfo is a row of `triggers list`.
type TriggerInfo struct {
	Name        string     `json:"name"`
	Connections []string   `json:"connections"`
	Events      []string   `json:"events"`
	Action      string     `json:"action"` // exec, http, publish
	Overlap     string     `json:"overlap"`
	Enabled     bool       `json:"enabled"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	PauseNote   string     `json:"pause_note,omitempty"`
	Queued      int        `json:"queued"` // turns that wait, backoff included
	Running     int        `json:"running"`
	Held        int        `json:"held"`
	Dead        int        `json:"dead"`
}

// PauseRequest pauses a trigger.
type PauseRequest struct {
	Until *time.Time `json:"until,omitempty"`
	Note  string     `json:"note,omitempty"`
}

// FireRequest fires a trigger by hand: an event on the reserved connection "manual" that only this trigger matches.
type FireRequest struct {
	Trigger string `json:"trigger"`
	Data    []byte `json:"data,omitempty"`
	Event   string `json:"event,omitempty"` // an event whose payload and type are used instead of Data
	ID      string `json:"id,omitempty"`    // default: a fresh ULID
}

// FireResult says what was fired.
type FireResult struct {
	Event     string `json:"event"` // "manual/<id>"
	Duplicate bool   `json:"duplicate"`
	Turn      string `json:"turn"` // the hash of the turn that it opens
	Key       string `json:"key"`
	Note      string `json:"note,omitempty"` // for example that the trigger is paused, so the turn is held
}

// BackfillRequest fires past slots of a schedule, in order, as one batch.
type BackfillRequest struct {
	Connection string    `json:"connection"`
	From       time.Time `json:"from"` // both are included
	To         time.Time `json:"to"`
	Again      bool      `json:"again,omitempty"`   // also slots that have fired
	DryRun     bool      `json:"dry_run,omitempty"` // says what there is to do, does nothing
}

// BackfillResult says what became of each slot.
type BackfillResult struct {
	Batch string           `json:"batch"` // in the payload of each event, as `backfill`; "" for a dry run
	Slots []BackfilledSlot `json:"slots"` // in order
}

// States of a slot in a backfill.
const (
	SlotBackfilled = "backfilled"    // its event is stored
	SlotFired      = "fired already" // its event was stored before: nothing new runs
	SlotDue        = "would fire"    // in a dry run
)

// BackfilledSlot is one slot.
type BackfilledSlot struct {
	Local string    `json:"local"` // in the schedule's zone
	UTC   time.Time `json:"utc"`
	Event string    `json:"event"` // "<connection>/<id>"
	State string    `json:"state"`
}

// ReloadResult says what a reload changed. An invalid file is an error instead, and changes nothing.
type ReloadResult struct {
	Changed     bool     `json:"changed"`
	Connections []string `json:"connections"` // "+name", "-name", "~name"
	Triggers    []string `json:"triggers"`
	Version     string   `json:"config_version"`
}

// AppInfo is a push connection's user on the embedded NATS server.
type AppInfo struct {
	Connection string `json:"connection"`
	User       string `json:"user"`
	File       string `json:"file"` // credentials, mode 0600, in the format of a nats CLI context
	URL        string `json:"url"`
	Subjects   string `json:"subjects"` // what the app may publish to
	Enabled    bool   `json:"enabled"`
}

// Readiness is `/readyz`. Reasons and Sources never hold secrets.
type Readiness struct {
	Ready       bool           `json:"ready"`
	Reasons     []string       `json:"reasons"`
	Version     string         `json:"version"`
	Role        string         `json:"role,omitempty"`         // owner or standby
	Standby     string         `json:"standby,omitempty"`      // why a standby would not take over
	ConfigError string         `json:"config_error,omitempty"` // the last reload that was refused
	Sources     []SourceStatus `json:"sources"`                // shown with ?verbose
}

// SourceStatus is one connection's state.
type SourceStatus struct {
	Connection string     `json:"connection"`
	Kind       string     `json:"kind"`
	State      string     `json:"state"` // starting, running, backoff, stopped
	Error      string     `json:"error,omitempty"`
	LastEvent  *time.Time `json:"last_event,omitempty"`
	Events     uint64     `json:"events"`
	Pending    uint64     `json:"pending"` // stored events that no trigger has seen yet
}
