package triggerd

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
)

// TurnKey names a turn: one event, one trigger, and for a replay its number. It is also the idempotency key that actions hand on.
type TurnKey struct {
	Connection string `json:"c"` // the connection's first name
	Trigger    string `json:"t"` // the trigger's first name
	EventID    string `json:"e"`
	Replay     int    `json:"n,omitempty"` // 0 for the turn that the event itself opened, 1 for its first replay, and so on
}

// String is "<connection>:<trigger>:<event id>", with "#<n>" for a replay.
func (k TurnKey) String() string {
	s := k.Connection + ":" + k.Trigger + ":" + k.EventID
	if k.Replay > 0 {
		s += "#" + strconv.Itoa(k.Replay)
	}
	return s
}

// Hash is the name of the turn's subject: 26 characters of base32. An event id that ends in "#1"
// and the first replay of a shorter id print alike, yet never share a hash.
func (k TurnKey) Hash() string {
	return HashID(k.Connection + ":" + k.Trigger + ":" + k.EventID + "\x00" + strconv.Itoa(k.Replay))
}

var hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// HashID is the first 128 bits of the SHA-256 of s in lower-case base32. Subjects are made of it, so any id fits and none can inject a token.
func HashID(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hashEncoding.EncodeToString(sum[:16])
}
