package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd"
)

// Schema is the version of everything that is stored. A store with a newer one is refused.
const Schema = 1

const (
	schemaKey = "triggerd-schema"
	// duplicateWindow is as short as it may be: ids are kept by subjects, and the server scans the window when it starts.
	duplicateWindow = 100 * time.Millisecond
)

// streams is the one table of what exists in NATS (design §3). Limits that could drop something unhandled are absent on purpose:
// EVENTS and TURNS are pruned by triggerd itself.
func (b *Bus) streams() []jetstream.StreamConfig {
	n := b.Names
	return []jetstream.StreamConfig{
		{
			Name:        n.Events(),
			Description: "triggerd: events, source positions and append fences",
			Subjects:    []string{n.Prefix + ".event.*.*.*", n.Prefix + ".cursor.*.*", n.Prefix + ".owner.*"},
			// One message per subject, and a second one is refused: this is what makes an event id unique for as long as it is kept.
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			AllowRollup:          true, // cursors and fences replace themselves
			AllowMsgTTL:          true,
			AllowAtomicPublish:   true, // pages that land whole
			AllowDirect:          true,
		},
		{
			Name:               n.Turns(),
			Description:        "triggerd: one subject per turn, its ledger",
			Subjects:           []string{n.Prefix + ".turn.*.*.*"},
			AllowRollup:        true, // the final entry replaces the rest
			AllowMsgTTL:        true, // and carries the retention
			AllowAtomicPublish: true,
			AllowDirect:        true,
		},
		{
			Name:              n.Threads(),
			Description:       "triggerd: transcripts of threads",
			Subjects:          []string{n.Prefix + ".thread.*"},
			MaxMsgsPerSubject: 10_000,
			MaxAge:            90 * 24 * time.Hour,
			AllowRollup:       true,
			AllowMsgTTL:       true,
			AllowDirect:       true,
		},
	}
}

// ensure creates or updates streams and buckets. It is safe to repeat.
func (b *Bus) ensure(ctx context.Context) error {
	for _, cfg := range b.streams() {
		if err := b.ensureStream(ctx, cfg); err != nil {
			return err
		}
	}
	kv, err := b.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      b.Names.Control(),
		Description: "triggerd: leases, pauses, config versions, positions",
		Storage:     jetstream.FileStorage,
		Replicas:    b.opts.replicas(),
	})
	if err != nil {
		return fmt.Errorf("create bucket %s: %w", b.Names.Control(), err)
	}
	blobs, err := b.JS.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      b.Names.Blobs(),
		Description: "triggerd: payloads and results over the message limit",
		Storage:     jetstream.FileStorage,
		Replicas:    b.opts.replicas(),
	})
	if err != nil {
		return fmt.Errorf("create bucket %s: %w", b.Names.Blobs(), err)
	}
	b.Control, b.blobs = kv, blobs
	if b.Events, err = b.JS.Stream(ctx, b.Names.Events()); err != nil {
		return fmt.Errorf("open stream %s: %w", b.Names.Events(), err)
	}
	if b.Turns, err = b.JS.Stream(ctx, b.Names.Turns()); err != nil {
		return fmt.Errorf("open stream %s: %w", b.Names.Turns(), err)
	}
	return nil
}

// EnsurePush creates or updates the stream of a push connection; maxBytes bounds what waits in it. It is safe to repeat.
func (b *Bus) EnsurePush(ctx context.Context, connection string, maxBytes int64) (jetstream.Stream, error) {
	cfg := jetstream.StreamConfig{
		Name:        b.Names.Push(connection),
		Description: "triggerd: what apps publish for the connection " + connection,
		Subjects:    []string{b.Names.PushSubjects(connection)},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew, // a full stream refuses the app's publish; nothing accepted is dropped
		MaxBytes:    maxBytes,
	}
	if err := b.ensureStream(ctx, cfg); err != nil {
		return nil, err
	}
	return b.JS.Stream(ctx, cfg.Name)
}

func (b *Bus) ensureStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	cfg.Storage = jetstream.FileStorage
	cfg.Replicas = b.opts.replicas()
	if cfg.Retention == jetstream.LimitsPolicy {
		cfg.Duplicates = duplicateWindow
	}
	cfg.Metadata = map[string]string{schemaKey: strconv.Itoa(Schema)}
	s, err := b.JS.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = b.JS.CreateStream(ctx, cfg); err != nil {
			return fmt.Errorf("create stream %s: %w", cfg.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", cfg.Name, err)
	}
	have := s.CachedInfo().Config.Metadata[schemaKey]
	switch v, err := strconv.Atoi(have); {
	case err != nil:
		return fmt.Errorf("stream %s exists and is not triggerd's (its %s is %q): %w: choose another nats.prefix", cfg.Name, schemaKey, have, triggerd.ErrConflict)
	case v > Schema:
		return fmt.Errorf("stream %s has schema %d, this version reads up to %d: %w: use a triggerd that writes schema %d", cfg.Name, v, Schema, ErrNewerSchema, v)
	}
	if _, err := b.JS.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}
