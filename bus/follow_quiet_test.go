package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// A reader that hears nothing for a while asks the server whether it has sent something, or has something to send.
func TestFollowMissesWhatIsLostLast(t *testing.T) {
	t.Run("sent to somebody else", func(t *testing.T) { missed(t, takeOne) })
	t.Run("not sent", func(t *testing.T) { missed(t, holdBack) })
}

// missed wants a reader to find out by itself what is done to its consumer.
func missed(t *testing.T, do func(ctx context.Context, t *testing.T, b *Bus, consumer string)) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := Open(ctx, Options{Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: t.TempDir(), Sync: SyncInterval, Listen: "off", Reserve: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := follower{
		bus: b, stream: b.Names.Turns(), filters: []string{b.Names.TurnsOf("default.1")}, quiet: 50 * time.Millisecond,
		f: func(jetstream.Msg) error { return nil },
	}
	made := make(chan struct{})
	go func() {
		defer close(made)
		for l := b.Turns.ConsumerNames(ctx); ctx.Err() == nil; l = b.Turns.ConsumerNames(ctx) {
			for name := range l.Name() {
				do(ctx, t, b, name)
				return
			}
		}
	}()
	if broken, err := s.follow(ctx); !broken || !errors.Is(err, errGap) {
		t.Errorf("broken: %v, %v", broken, err)
	}
	<-made
}

// takeOne asks a consumer for messages until it has one, which its reader then misses.
func takeOne(ctx context.Context, t *testing.T, b *Bus, name string) {
	c, err := b.Turns.Consumer(ctx, name)
	if err != nil {
		t.Error(err)
		return
	}
	for taken := false; !taken && ctx.Err() == nil; {
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return // the reader has missed it and its consumer is gone
		}
		for range 2 { // requests take turns, and the reader's comes first
			if _, err := b.Publish(ctx, nats.NewMsg(b.Names.Turn("default", "1", "h"))); err != nil {
				t.Error(err)
				return
			}
		}
		for range batch.Messages() {
			taken = true
		}
	}
}

// holdBack makes the server keep a message that a consumer has to be sent.
func holdBack(ctx context.Context, t *testing.T, b *Bus, name string) {
	if _, err := b.Turns.PauseConsumer(ctx, name, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
		return
	}
	if _, err := b.Publish(ctx, nats.NewMsg(b.Names.Turn("default", "1", "h"))); err != nil {
		t.Error(err)
	}
}
