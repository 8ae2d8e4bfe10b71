package expr

import (
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/triggerd/triggerd"
)

// Vars are the values behind the names of a scope. They are for one goroutine at a time.
type Vars struct {
	event   *eventData
	request *requestData
	now     time.Time
	input   any
	turn    Turn
	action  bool
	self    [3]objectVal // event, turn and request: made once, so that a lookup costs nothing
}

// eventData is shared by the Vars of one event: the payload is decoded at most once.
type eventData struct {
	ev         *triggerd.Event
	connection string
	decoded    bool
	value      any
}

func (e *eventData) payload() any {
	if !e.decoded {
		e.value, e.decoded = DecodePayload(e.ev.ContentType, e.ev.Payload), true
	}
	return e.value
}

type requestData struct {
	data    RequestData
	decoded bool
	value   any
}

func (r *requestData) body() any {
	if !r.decoded {
		r.value, r.decoded = DecodePayload(r.data.ContentType, r.data.Body), true
	}
	return r.value
}

// Turn is what `turn` shows of a running turn.
type Turn struct {
	Key            string
	Trigger        string // present name
	Connection     string // present name
	Attempt        int    // 1 for the first; `event.attempt` as well
	Thread         string
	IdempotencyKey string
	Opened         time.Time
}

// RequestData is what `request` shows of an HTTP request.
type RequestData struct {
	Headers     map[string]string // names in lower case
	Query       map[string]string
	Path        string
	Method      string
	ContentType string // says how `request.body` is decoded, as DecodePayload does
	Body        []byte
}

// NewVars gives the names of [Decision]. ev is read while expressions run and must not change meanwhile; its payload is decoded
// at most once, and only when an expression asks for it. connectionName is what `event.connection` shows, ev.Connection when "".
func NewVars(ev *triggerd.Event, connectionName string) *Vars {
	if connectionName == "" {
		connectionName = ev.Connection
	}
	return (&Vars{event: &eventData{ev: ev, connection: connectionName}, now: ev.Received}).bind()
}

// ForAction gives the names of [Action] for the same event, without decoding it again. input is a plain value.
func (v *Vars) ForAction(input any, turn Turn) *Vars {
	return (&Vars{event: v.event, now: v.now, input: input, turn: turn, action: true}).bind()
}

// NewRequestVars gives the names of [Request]; the body is decoded at most once, and only when an expression asks for it.
func NewRequestVars(r RequestData, now time.Time) *Vars {
	return (&Vars{request: &requestData{data: r}, now: now}).bind()
}

func (v *Vars) bind() *Vars {
	v.self = [3]objectVal{{eventObject, v}, {turnObject, v}, {requestObject, v}}
	return v
}

// ResolveName implements CEL's Activation.
func (v *Vars) ResolveName(name string) (any, bool) {
	switch name {
	case "event":
		return &v.self[0], v.event != nil
	case "turn":
		return &v.self[1], v.action
	case "request":
		return &v.self[2], v.request != nil
	case "now":
		return types.Timestamp{Time: v.now.UTC()}, true
	case "input":
		return v.input, v.action
	}
	return nil, false
}

// Parent implements CEL's Activation.
func (v *Vars) Parent() interpreter.Activation { return nil }

// withSecrets adds `secrets` to the names, for one evaluation.
type withSecrets struct {
	*Vars
	secrets *secretsVal
}

// ResolveName implements CEL's Activation.
func (w withSecrets) ResolveName(name string) (any, bool) {
	if name == "secrets" {
		return ref.Val(w.secrets), true
	}
	return w.Vars.ResolveName(name)
}
