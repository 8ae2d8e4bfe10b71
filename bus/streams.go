package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
			AllowRollup:        true,
			AllowMsgTTL:        true, // entries carry none: turns expires them; the server does not let a stream go back on it
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

// ensurePatience is how long a start waits for a cluster that is being formed, elects a leader or creates replicas.
const ensurePatience = 30 * time.Second

// ensure creates or updates streams and buckets, and waits for a NATS system of somebody else that cannot do so yet. It is safe to repeat,
// also by several daemons at once.
func (b *Bus) ensure(ctx context.Context) error {
	for deadline := time.Now().Add(ensurePatience); ; {
		err := b.ensureAll(ctx)
		if err == nil || b.embedded != nil || !temporary(err) || time.Now().After(deadline) {
			return err
		}
		b.log.Info().Err(err).Msg("NATS cannot prepare the streams yet; trying again")
		if !Pause(ctx, time.Second) {
			return err
		}
	}
}

// temporary reports whether the same request may work in a moment.
func temporary(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		// A server that has just met the others calls them offline until it has heard from them.
		return api.Code == 503 || api.Code == 500 || api.ErrorCode == codeNoPeers && strings.Contains(api.Description, "offline")
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound)
}

func (b *Bus) ensureAll(ctx context.Context) error {
	for _, cfg := range b.streams() {
		if err := b.ensureStream(ctx, cfg); err != nil {
			return err
		}
	}
	var err error
	if b.Control, err = b.ensureControl(ctx); err != nil {
		return fmt.Errorf("create bucket %s: %w", b.Names.Control(), err)
	}
	if b.control, err = b.JS.Stream(ctx, "KV_"+b.Names.Control()); err != nil {
		return fmt.Errorf("open bucket %s: %w", b.Names.Control(), err)
	}
	if b.blobs, err = b.ensureBlobs(ctx); err != nil {
		return fmt.Errorf("create bucket %s: %w", b.Names.Blobs(), err)
	}
	if b.Events, err = b.JS.Stream(ctx, b.Names.Events()); err != nil {
		return fmt.Errorf("open stream %s: %w", b.Names.Events(), err)
	}
	if b.Turns, err = b.JS.Stream(ctx, b.Names.Turns()); err != nil {
		return fmt.Errorf("open stream %s: %w", b.Names.Turns(), err)
	}
	return nil
}

// Buckets are looked up first: only their number of replicas ever changes, and each daemon that starts would have a cluster update all replicas otherwise.
func (b *Bus) ensureControl(ctx context.Context) (jetstream.KeyValue, error) {
	if b.replicated(ctx, "KV_"+b.Names.Control()) {
		return b.JS.KeyValue(ctx, b.Names.Control())
	}
	return b.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      b.Names.Control(),
		Description: "triggerd: leases, pauses, config versions, positions",
		Storage:     jetstream.FileStorage,
		Replicas:    b.opts.replicas(),
	})
}

func (b *Bus) ensureBlobs(ctx context.Context) (jetstream.ObjectStore, error) {
	if b.replicated(ctx, b.blobStream()) {
		return b.JS.ObjectStore(ctx, b.Names.Blobs())
	}
	return b.JS.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      b.Names.Blobs(),
		Description: "triggerd: payloads and results over the message limit",
		Storage:     jetstream.FileStorage,
		Replicas:    b.opts.replicas(),
	})
}

// replicated reports whether a bucket's stream is there with as many replicas as configured.
func (b *Bus) replicated(ctx context.Context, stream string) bool {
	s, err := b.JS.Stream(ctx, stream)
	return err == nil && s.CachedInfo().Config.Replicas == b.opts.replicas()
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
	if same(s.CachedInfo().Config, cfg) {
		return nil
	}
	if _, err := b.JS.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}

// same reports whether a stream has the settings that we give it; what the server adds does not count.
func same(have, want jetstream.StreamConfig) bool {
	return have.Description == want.Description && slices.Equal(have.Subjects, want.Subjects) && have.Retention == want.Retention &&
		have.Discard == want.Discard && have.DiscardNewPerSubject == want.DiscardNewPerSubject && have.Replicas == want.Replicas &&
		max(have.MaxMsgsPerSubject, 0) == want.MaxMsgsPerSubject && max(have.MaxBytes, 0) == want.MaxBytes && have.MaxAge == want.MaxAge &&
		(want.Duplicates == 0 || have.Duplicates == want.Duplicates) && have.AllowRollup == want.AllowRollup && have.AllowMsgTTL == want.AllowMsgTTL &&
		have.AllowAtomicPublish == want.AllowAtomicPublish && have.AllowDirect == want.AllowDirect && have.Metadata[schemaKey] == want.Metadata[schemaKey]
}
