// Package expr compiles the two languages of the configuration: CEL expressions, which decide, and
// `${{ CEL }}` templates, which make texts.
//
// An expression is a pure function of what it is given: there is no clock, no randomness and no I/O in it, and maps are
// walked in the order of their keys. So a decision made again, on another day and by another process, is the same decision.
// Every evaluation ends: it may spend [CostLimit] and is an error beyond that. Nothing here panics on any input.
//
// Numbers of a JSON payload are exact: see [DecodePayload]. Int, uint and double compare with each other by value.
package expr

// Scope says which names an expression sees.
type Scope uint8

const (
	// Decision is what triggers decide with: `event` and `now`.
	Decision Scope = iota
	// Request is what a webhook knows before there is an event: `request` and `now`.
	Request
	// Action is what a turn's texts are made of: `event`, `now`, `input`, `turn` and `secrets`.
	Action
)

// String is the scope's name in error messages.
func (s Scope) String() string {
	switch s {
	case Decision:
		return "decision"
	case Request:
		return "request"
	case Action:
		return "action"
	}
	return "unknown"
}

// CostLimit is what one evaluation may spend, in CEL's cost units (roughly one step, or ten bytes of text, each).
// A filter over an ordinary payload spends tens; one pass over a list of 100,000 entries fits; a loop within a loop over
// 1,000 entries does not. The limit is reached in about a second at most, whatever the expression and the payload.
const CostLimit = 1_000_000

// MaxKey is the longest key that an expression may give, in bytes. Keys travel in message headers and lists.
const MaxKey = 1024
