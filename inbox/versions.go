package inbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// Version says which configuration decides the events from a sequence on. A decision is a pure function of (event, version),
// so an event that is decided again after a crash gets the same verdicts.
type Version struct {
	ID   string `json:"version"`
	From uint64 `json:"from"` // first sequence that it decides
}

// VersionAt is the version that decides seq; the zero Version when none does.
func VersionAt(vs []Version, seq uint64) Version {
	var v Version
	for _, c := range vs {
		if c.From <= seq {
			v = c
		}
	}
	return v
}

func versionKey(connection string) string { return "version." + connection }

// LoadVersions reads the connection's versions, oldest first.
func LoadVersions(ctx context.Context, b *bus.Bus, connection string) ([]Version, error) {
	data, err := b.GetControl(ctx, versionKey(connection))
	if err != nil || data == nil {
		return nil, err
	}
	var vs []Version
	if err := json.Unmarshal(data, &vs); err != nil {
		return nil, fmt.Errorf("decode versions of %s: %w", connection, err)
	}
	return vs, nil
}

// AddVersion records that version decides the connection's events from a sequence on, before any decision under it, and drops what decides
// nothing that is still stored (oldest is the first sequence in EVENTS). It blocks until that is durable and returns all versions, oldest first.
// A version that is the newest already is not added again.
func AddVersion(ctx context.Context, b *bus.Bus, connection string, v Version, oldest uint64) ([]Version, error) {
	vs, err := LoadVersions(ctx, b, connection)
	if err != nil {
		return nil, err
	}
	if n := len(vs); n > 0 && vs[n-1].ID == v.ID {
		return vs, nil
	}
	vs = append(vs, v)
	for len(vs) > 1 && vs[1].From <= oldest {
		vs = vs[1:]
	}
	data, err := json.Marshal(vs)
	if err != nil {
		return nil, fmt.Errorf("encode versions: %w", err)
	}
	return vs, b.PutControl(ctx, versionKey(connection), data)
}

// SaveDefinitions keeps what a version decides by (no secrets), so that `explain` can repeat its decisions. Safe to repeat.
func SaveDefinitions(ctx context.Context, b *bus.Bus, version string, definitions []byte) error {
	have, err := b.GetControl(ctx, "definitions."+version)
	if err != nil || have != nil {
		return err
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(definitions); err != nil {
		return fmt.Errorf("compress definitions: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("compress definitions: %w", err)
	}
	return b.PutControl(ctx, "definitions."+version, buf.Bytes())
}

// LoadDefinitions reads what SaveDefinitions kept. The error is [triggerd.ErrNotFound] for an unknown version.
func LoadDefinitions(ctx context.Context, b *bus.Bus, version string) ([]byte, error) {
	data, err := b.GetControl(ctx, "definitions."+version)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fmt.Errorf("config version %s: %w", version, triggerd.ErrNotFound)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress definitions: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress definitions: %w", err)
	}
	return out, nil
}
