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

// versionRecord is what is stored of a connection's versions.
type versionRecord struct {
	Epoch    uint64    `json:"epoch"` // of the owner that recorded the last one
	Versions []Version `json:"versions"`
}

// LoadVersions reads the connection's versions, oldest first.
func LoadVersions(ctx context.Context, b *bus.Bus, connection string) ([]Version, error) {
	r, _, err := loadVersions(ctx, b, connection)
	return r.Versions, err
}

func loadVersions(ctx context.Context, b *bus.Bus, connection string) (r versionRecord, revision uint64, err error) {
	m, err := b.LastControl(ctx, versionKey(connection))
	if err != nil || m == nil {
		return r, 0, err
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return r, 0, fmt.Errorf("decode versions of %s: %w", connection, err)
	}
	return r, m.Sequence, nil
}

// AddVersion records that version decides the connection's events from a sequence on, before any decision under it, and drops what decides
// nothing that is still stored (oldest is the first sequence in EVENTS). It blocks until that is durable and returns all versions, oldest first.
// A version that is the newest already is not added again. The error is [triggerd.ErrFenced] when an owner of a later epoch has recorded one,
// or is about to.
func AddVersion(ctx context.Context, b *bus.Bus, connection string, v Version, epoch, oldest uint64) ([]Version, error) {
	r, revision, err := loadVersions(ctx, b, connection)
	if err != nil {
		return nil, err
	}
	if r.Epoch > epoch {
		return nil, fmt.Errorf("record a version of %s: %w", connection, triggerd.ErrFenced)
	}
	n := len(r.Versions)
	known := n > 0 && r.Versions[n-1].ID == v.ID
	if known && r.Epoch == epoch {
		return r.Versions, nil
	}
	if r.Epoch = epoch; !known {
		r.Versions = append(r.Versions, v)
	}
	for len(r.Versions) > 1 && r.Versions[1].From <= oldest {
		r.Versions = r.Versions[1:]
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode versions: %w", err)
	}
	// On the condition that nothing has changed since: a former owner that was frozen here must not undo what its successor has recorded.
	if _, err = b.SwapControl(ctx, versionKey(connection), data, revision); err != nil {
		return nil, fmt.Errorf("record a version of %s: %w: %w", connection, triggerd.ErrUnavailable, err)
	}
	return r.Versions, b.Sync(ctx)
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
