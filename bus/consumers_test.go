package bus

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// There may be more connections, each with a reader of its own, than the server's usual limit.
func TestManyConsumers(t *testing.T) {
	b, err := Open(t.Context(), Options{Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: t.TempDir(), Sync: SyncInterval, Listen: "off", Reserve: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 1010 {
		_, err := b.Events.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Name: fmt.Sprint("c", i), MemoryStorage: true, AckPolicy: jetstream.AckNonePolicy})
		if err != nil {
			t.Fatalf("consumer %d: %v", i, err)
		}
	}
}
