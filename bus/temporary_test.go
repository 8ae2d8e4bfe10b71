package bus

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Only what passes by itself is waited for at a start: a cluster that will never have enough servers is a mistake to be told at once.
func TestTemporary(t *testing.T) {
	for description, want := range map[string]bool{
		"no suitable peers for placement, peer offline":                   true,
		"no suitable peers for placement, insufficient storage":           false,
		"no suitable peers for placement, tags not matched ['ssd']":       false,
		"no suitable peers for placement, peer offline, tags not matched": true,
	} {
		if got := temporary(&jetstream.APIError{Code: 400, ErrorCode: codeNoPeers, Description: description}); got != want {
			t.Errorf("%q: %v, want %v", description, got, want)
		}
	}
	if !temporary(&jetstream.APIError{Code: 503, ErrorCode: 10008}) || temporary(&jetstream.APIError{Code: 400, ErrorCode: 10052}) {
		t.Error("a server that is not there yet is temporary, a wrong setting is not")
	}
}
