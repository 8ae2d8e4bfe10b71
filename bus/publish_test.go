//go:build linux

package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestPublishTellsRefusalsApart(t *testing.T) {
	b := bustest.Open(t)
	owner := b.Names.Owner("github")
	rollup := func(m *nats.Msg) { m.Header.Set(bus.HeaderRollup, bus.RollupSubject) }
	fence := mustPublish(t, b, owner, rollup)
	taken := b.Names.Event("github", "0", "taken")
	mustPublish(t, b, taken)
	expect := func(subject string, seq uint64) func(*nats.Msg) {
		return func(m *nats.Msg) { bus.Expect(m, subject, seq) }
	}
	for name, tc := range map[string]struct {
		subject string
		change  func(*nats.Msg)
		want    error
	}{
		"the subject is taken":                    {taken, func(*nats.Msg) {}, bus.ErrExists},
		"the subject is taken, with our fence":    {taken, expect(owner, fence), bus.ErrExists},
		"a fence that somebody has passed":        {b.Names.Event("github", "0", "a"), expect(owner, fence-1), bus.ErrWrongSequence},
		"a fence where there is none":             {b.Names.Event("github", "0", "b"), expect(b.Names.Owner("gitlab"), 5), bus.ErrWrongSequence},
		"something where nothing is expected":     {b.Names.Event("github", "0", "c"), expect(owner, 0), bus.ErrWrongSequence},
		"a body over the message limit":           {b.Names.Event("github", "0", "d"), func(m *nats.Msg) { m.Data = make([]byte, 2<<20) }, triggerd.ErrTooLarge},
		"headers over the limit":                  {b.Names.Event("github", "0", "e"), func(m *nats.Msg) { m.Header.Set("big", strings.Repeat("x", 70<<10)) }, triggerd.ErrTooLarge},
		"a subject that no stream takes":          {"triggerd.nothing", func(*nats.Msg) {}, triggerd.ErrUnavailable},
		"a message that the stream cannot accept": {b.Names.Event("github", "0", "f"), func(m *nats.Msg) { m.Header.Set(bus.HeaderTTL, "soon") }, triggerd.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := publish(t, b, tc.subject, tc.change); !errors.Is(err, tc.want) {
				t.Fatalf("publish: %v, want %v", err, tc.want)
			}
		})
	}
	if err := b.Writable(); err != nil {
		t.Fatalf("refusals are answers: %v", err)
	}
	mustPublish(t, b, b.Names.Event("github", "0", "g"), expect(owner, fence))
}

func TestPublishAsyncKeepsOrder(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	sent := make([]*bus.Pending, 500)
	for i := range sent {
		sent[i] = b.PublishAsync(nats.NewMsg(b.Names.Event("github", "0", fmt.Sprint("n", i))))
	}
	last := uint64(0)
	for i, p := range sent {
		seq, err := p.Wait(ctx)
		if err != nil || seq != last+1 {
			t.Fatalf("publish %d: sequence %d after %d, %v", i, seq, last, err)
		}
		last = seq
	}
}

func TestPublishEndsWithItsContextAndItsBus(t *testing.T) {
	b := bustest.Open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the sender has hung up"))
	_, err := b.Publish(ctx, nats.NewMsg("nobody.listens")) // an answer may have come first, so both are possible
	if !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("publish with an ended context: %v", err)
	}
	if err := b.Writable(); err != nil {
		t.Fatalf("a caller that gave up says nothing about the store: %v", err)
	}
	b.Close()
	if _, err := publish(t, b, b.Names.Event("github", "0", "a")); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("publish on a closed bus: %v", err)
	}
	if err := b.Writable(); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Fatalf("a closed bus is writable: %v", err)
	}
}

func TestWritersAreTheirOwn(t *testing.T) {
	a, b := bustest.Open(t), bustest.Open(t)
	seen := map[string]bool{}
	for range 100 {
		seen[a.NextWriter()], seen[b.NextWriter()] = true, true
	}
	if len(seen) != 200 {
		t.Fatalf("%d different writers of 200", len(seen))
	}
}

func TestCursorHeader(t *testing.T) {
	for _, c := range []triggerd.Cursor{nil, {}, []byte("2026-03-29T01:00:00Z"), {0, 255, '\r', '\n'}} {
		h := nats.Header{}
		bus.SetCursor(h, c)
		got, err := bus.CursorOf(h)
		if err != nil || !bytes.Equal(got, c) || (got == nil) != (c == nil) {
			t.Errorf("cursor %q came back as %q (nil: %v), %v", c, got, got == nil, err)
		}
	}
	if _, err := bus.CursorOf(nats.Header{bus.HeaderCursor: {"not base64!"}}); err == nil {
		t.Error("damage was not noticed")
	}
}
