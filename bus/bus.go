// Package bus is triggerd's connection to NATS: an embedded server or an external one, the streams and buckets with their limits,
// durable publishing and the blobs that do not fit in a message.
package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Errors that callers branch on, besides [triggerd.ErrUnavailable] and [triggerd.ErrTooLarge].
var (
	// ErrExists: the subject holds a message already (JetStream error 10077 with its reason).
	ErrExists = errors.New("subject is taken")
	// ErrWrongSequence: the expected last sequence is not the last one (10071). Read the last entry before you call it a conflict.
	ErrWrongSequence = errors.New("not the expected last sequence")
	// ErrRetryNow: a concurrent write got in between (10164); the same publish may succeed at once.
	ErrRetryNow = errors.New("concurrent write, retry")
	// ErrNewerSchema: the store was written by a newer version.
	ErrNewerSchema = errors.New("store has a newer schema")
	// ErrLocked: another process uses the store folder.
	ErrLocked = errors.New("store folder is in use")
	// ErrDiskFull: there is no room to start in.
	ErrDiskFull = errors.New("disk is full")
)

// AppendTimeout bounds one publish (design §4): a sender waits for its answer.
const AppendTimeout = 2 * time.Second

// apiTimeout bounds a request to JetStream whose caller set no limit.
const apiTimeout = 5 * time.Second

// pingInterval is how soon a server is missed that went away without a word, after two pings.
const pingInterval = 5 * time.Second

// minPayload is the smallest message limit of an external server that triggerd works with:
// a turn's entry has up to 64 KiB of output and as much again of headers.
const minPayload = 256 << 10

// Options say where NATS is. Exactly one of Embedded and External is set.
type Options struct {
	Prefix   string // of stream names and subjects
	Replicas int    // of every stream; 0 = 1
	Domain   string
	Embedded *EmbeddedOptions
	External *ExternalOptions
	Log      zerolog.Logger
}

func (o *Options) replicas() int { return max(o.Replicas, 1) }

// ExternalOptions reach a server or cluster that somebody else runs.
type ExternalOptions struct {
	URLs  []string
	Creds string // path of a .creds file
	NKey  string // path of a seed file
	Token string
	CA    string
	Cert  string
	Key   string
}

// Bus is an open connection. Its exported fields are set by [Open] and not changed afterwards.
type Bus struct {
	Names   Names
	NC      *nats.Conn
	JS      jetstream.JetStream
	Events  jetstream.Stream
	Turns   jetstream.Stream
	Control jetstream.KeyValue

	opts     Options
	log      zerolog.Logger
	control  jetstream.Stream // of the bucket CONTROL
	blobs    jetstream.ObjectStore
	embedded *embedded
	syncer   *syncer
	health   *health
	acks     *acks // nil before the connection is open
	writer   string
	counter  atomic.Uint64

	stopWatch func() // nil before the watch runs
	closing   sync.Once
}

// Open starts or reaches the server and creates or updates what is stored there. It blocks until appends are possible.
// Errors that name an operator's next step wrap [ErrLocked], [ErrDiskFull] or [ErrNewerSchema].
func Open(ctx context.Context, o Options) (_ *Bus, err error) {
	b := &Bus{Names: Names{Prefix: o.Prefix}, opts: o, log: o.Log, writer: nuid.Next(), health: newHealth()}
	defer func() {
		if err != nil {
			err = o.noSpace(err) // before Close, which may make room
			b.Close()
		}
	}()
	if o.Embedded != nil {
		if b.embedded, err = startEmbedded(ctx, *o.Embedded, b.Names, o.Log); err != nil {
			return nil, err
		}
		if o.Embedded.Sync == SyncGroup {
			if b.syncer, err = newSyncer(o.Embedded.Store); err != nil {
				return nil, err
			}
		}
	}
	if b.NC, err = b.connect(); err != nil {
		return nil, err
	}
	if b.acks, err = newAcks(b.NC); err != nil {
		return nil, fmt.Errorf("subscribe to the answers of streams: %w", err)
	}
	if b.JS, err = newJetStream(b.NC, o.Domain); err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	if limit := b.NC.MaxPayload(); limit < minPayload {
		return nil, fmt.Errorf("the NATS server takes messages of %d bytes, triggerd needs %d: raise its max_payload", limit, minPayload)
	}
	if err = b.ensure(ctx); err != nil {
		return nil, fmt.Errorf("prepare streams: %w", err)
	}
	b.startWatch()
	return b, nil
}

// noSpace names the cause of a start that the disk has ended half way; the server only says that it failed.
func (o *Options) noSpace(err error) error {
	if o.Embedded != nil && !errors.Is(err, ErrDiskFull) && isFull(o.Embedded.Store) {
		return fmt.Errorf("%w: %w: free some space or move nats.embedded.store (%s)", ErrDiskFull, err, o.Embedded.Store)
	}
	return err
}

func newJetStream(nc *nats.Conn, domain string) (jetstream.JetStream, error) {
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(apiTimeout),
	}
	if domain != "" {
		return jetstream.NewWithDomain(nc, domain, opts...)
	}
	return jetstream.New(nc, opts...)
}

// reconnectDelay is the pause before the n-th try in a row to reach the server again. For the first seconds it stays short: a daemon that is away for three
// loses its work to the others, and should not do so by waiting for its next try.
func reconnectDelay(n int) time.Duration {
	ceiling := min(100*time.Millisecond<<min(n, 5), 400*time.Millisecond)
	if n > 20 {
		ceiling = 2 * time.Second
	}
	return ceiling/2 + rand.N(ceiling/2)
}

func (b *Bus) connect() (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("triggerd"),
		// The daemon's replies carry payloads, so the place they come back to must not be guessable.
		nats.CustomInboxPrefix(inboxPrefix + "." + nuid.Next()),
		nats.MaxReconnects(-1),
		nats.PingInterval(pingInterval),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // no buffering while away: a publish fails at once and its caller decides
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.log.Warn().Err(err).Msg("lost the NATS server")
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { b.log.Info().Msg("reached the NATS server again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.health.note(b.log, err, "nats client") }),
	}
	if b.embedded != nil {
		opts = append(opts, nats.InProcessServer(b.embedded), nats.UserInfo(daemonUser, b.embedded.password))
		nc, err := nats.Connect("", opts...)
		if err != nil {
			return nil, fmt.Errorf("connect to the embedded NATS server: %w", err)
		}
		return nc, nil
	}
	x := b.opts.External
	if x.Creds != "" {
		opts = append(opts, nats.UserCredentials(x.Creds))
	}
	if x.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(x.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nats.nkey: %w", err)
		}
		opts = append(opts, o)
	}
	if x.Token != "" {
		opts = append(opts, nats.Token(x.Token))
	}
	if x.CA != "" {
		opts = append(opts, nats.RootCAs(x.CA))
	}
	if x.Cert != "" {
		opts = append(opts, nats.ClientCert(x.Cert, x.Key))
	}
	nc, err := nats.Connect(strings.Join(x.URLs, ","), opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats.url: %w", err)
	}
	return nc, nil
}

// External reports whether other processes may write to the same NATS.
func (b *Bus) External() bool { return b.embedded == nil }

// Sync blocks until every publish that was acknowledged before the call is as durable as configured (design §4).
// An error is [triggerd.ErrUnavailable]: nothing may be called done.
func (b *Bus) Sync(ctx context.Context) error {
	if b.syncer == nil {
		return nil
	}
	return b.syncer.Sync(ctx)
}

// Flush is Sync in every mode of the embedded server: it blocks until all that it has written is on the device, where the system can do that.
func (b *Bus) Flush(ctx context.Context) error {
	if b.syncer != nil {
		return b.syncer.Sync(ctx)
	}
	if b.embedded == nil || !groupSyncSupported {
		return nil
	}
	dir, err := os.Open(b.opts.Embedded.Store)
	if err != nil {
		return fmt.Errorf("flush store: %w: %w", triggerd.ErrUnavailable, err)
	}
	defer func() { _ = dir.Close() }()
	if err := syncFileSystem(dir); err != nil {
		return fmt.Errorf("flush store: %w: %w", triggerd.ErrUnavailable, err)
	}
	return nil
}

// NextWriter is a fresh mark for [HeaderWriter]. Use one for all tries of the same write.
func (b *Bus) NextWriter() string {
	return b.writer + ":" + strconv.FormatUint(b.counter.Add(1), 10)
}

// PutControl stores a key in the bucket CONTROL and blocks until it is durable. It is safe to repeat.
func (b *Bus) PutControl(ctx context.Context, key string, value []byte) error {
	if _, err := b.Control.Put(ctx, key, value); err != nil {
		return fmt.Errorf("store %s: %w: %w", key, triggerd.ErrUnavailable, err)
	}
	return b.Sync(ctx)
}

// SwapControl stores a key of the bucket CONTROL on the condition that it still has this revision (0 = there is no such key), and returns the new one.
// [Conflict] tells whether an error says that the condition does not hold.
func (b *Bus) SwapControl(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return b.Control.Create(ctx, key, value)
	}
	return b.Control.Update(ctx, key, value, revision)
}

// GetControl reads a key of the bucket CONTROL; nil without an error means that there is none.
func (b *Bus) GetControl(ctx context.Context, key string) ([]byte, error) {
	m, err := b.LastControl(ctx, key)
	if err != nil || m == nil {
		return nil, err
	}
	return m.Data, nil
}

// LastControl is GetControl with the key's revision (the message's sequence) and time. Unlike the client library's Get it sees everything that was
// acknowledged before the call, and never asks a replica that is cut off from the others.
func (b *Bus) LastControl(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	m, err := b.Last(ctx, b.control, "$KV."+b.Names.Control()+"."+key)
	if err != nil || m == nil || gone(m.Header) {
		return nil, err
	}
	return m, nil
}

// ControlKeys lists the keys of the bucket CONTROL that match a pattern of subjects, in order.
func (b *Bus) ControlKeys(ctx context.Context, pattern string) ([]string, error) {
	prefix := "$KV." + b.Names.Control() + "."
	var keys []string
	// The client library's lister leaves out, without a word, what comes after the end of ctx.
	err := b.Scan(ctx, "KV_"+b.Names.Control(), ScanOptions{Filter: prefix + pattern, LastOnly: true, HeadersOnly: true}, func(m jetstream.Msg) error {
		if !gone(m.Headers()) {
			keys = append(keys, strings.TrimPrefix(m.Subject(), prefix))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w: %w", pattern, triggerd.ErrUnavailable, err)
	}
	slices.Sort(keys) // a key that was rewritten meanwhile comes twice
	return slices.Compact(keys), nil
}

// InlineMax is how many bytes of body fit in one of our messages beside their headers; what is larger goes to a blob.
func (b *Bus) InlineMax() int {
	return min(int(b.NC.MaxPayload())-128<<10, 512<<10)
}

// Close disconnects, stops an embedded server and releases the store. It is safe to call twice; what is still written after it fails.
func (b *Bus) Close() {
	b.closing.Do(func() {
		if b.stopWatch != nil {
			b.stopWatch()
		}
		if b.NC != nil {
			b.NC.Close()
		}
		if b.acks != nil {
			b.acks.close()
		}
		if b.syncer != nil {
			b.syncer.close()
		}
		if b.embedded != nil {
			b.embedded.close()
		}
	})
}
