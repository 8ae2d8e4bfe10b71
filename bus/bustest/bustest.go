// Package bustest opens real buses for tests: an embedded server on a temporary store, closed when the test ends.
package bustest

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd/bus"
)

// Prefix of the streams and subjects of test buses.
const Prefix = "triggerd"

// Option changes what [Open] opens.
type Option func(*bus.Options)

// Store puts the store into dir, for tests that open it again. Without it each bus has its own temporary folder.
func Store(dir string) Option { return func(o *bus.Options) { o.Embedded.Store = dir } }

// Sync sets the sync mode. Without it tests use [bus.SyncInterval]: it is the fastest, and it differs from the others in power losses only.
func Sync(mode string) Option { return func(o *bus.Options) { o.Embedded.Sync = mode } }

// Listen makes the server take connections of apps on a free loopback port. Without it the daemon's connection is the only one.
func Listen() Option { return func(o *bus.Options) { o.Embedded.Listen = "127.0.0.1:0" } }

// Reserve sets the free space below which events are refused. Without it any space is enough.
func Reserve(bytes int64) Option { return func(o *bus.Options) { o.Embedded.Reserve = bytes } }

// Log shows what the bus logs.
func Log(log zerolog.Logger) Option { return func(o *bus.Options) { o.Log = log } }

// Options are what [Open] opens a bus with.
func Options(t testing.TB, opts ...Option) bus.Options {
	t.Helper()
	o := bus.Options{Prefix: Prefix, Log: zerolog.Nop(), Embedded: &bus.EmbeddedOptions{Sync: bus.SyncInterval, Listen: "off", Reserve: 1}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.Embedded.Store == "" {
		o.Embedded.Store = t.TempDir()
	}
	return o
}

// Open opens a bus and closes it when the test ends. A test may close it before.
func Open(t testing.TB, opts ...Option) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := bus.Open(ctx, Options(t, opts...))
	if err != nil {
		t.Fatalf("open bus: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}

// Context ends with the test, and makes one that hangs fail within a minute.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
