package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Replicated streams are read from their leader; a single server is its own.
func TestReadsFromTheLeaderAreTheSame(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := Open(ctx, Options{Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: t.TempDir(), Sync: SyncInterval, Reserve: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := nats.NewMsg(b.Names.Event("github", "0", "a"))
	m.Header.Set("k", "v")
	m.Data = []byte("payload")
	seq, err := b.Publish(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	b.opts.Replicas = 3
	last, err := b.Last(ctx, b.Events, b.Names.EventsOf("github"))
	if err != nil || last.Sequence != seq || last.Subject != m.Subject || last.Header.Get("k") != "v" || string(last.Data) != "payload" || last.Time.IsZero() {
		t.Fatalf("last: %+v, %v", last, err)
	}
	if last, err := b.Last(ctx, b.Events, b.Names.EventsOf("gitlab")); err != nil || last != nil {
		t.Fatalf("last of nothing: %+v, %v", last, err)
	}
	if at, err := b.At(ctx, b.Events, seq); err != nil || at.Sequence != seq {
		t.Fatalf("at: %+v, %v", at, err)
	}
	if _, err := b.At(ctx, b.Events, seq+1); !errors.Is(err, triggerd.ErrNotFound) {
		t.Fatalf("at nothing: %v", err)
	}
}
