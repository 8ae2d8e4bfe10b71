package bus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/triggerd/triggerd"
)

// BlobGrace is how old an unreferenced blob must be before the sweep deletes it: far longer than any write takes from its blob to its message.
const BlobGrace = 24 * time.Hour

// PutBlob stores data under a fresh name and blocks until it is durable. The caller then publishes a message that names it in [HeaderBlob];
// a blob that no message names is deleted by the sweep after [BlobGrace]. Names are never used again, so a sweep cannot race with a reuse.
func (b *Bus) PutBlob(ctx context.Context, data []byte) (string, error) {
	name := nuid.Next()
	if _, err := b.blobs.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(data)); err != nil {
		return "", fmt.Errorf("store blob: %w: %w", triggerd.ErrUnavailable, err)
	}
	if err := b.Sync(ctx); err != nil {
		return "", err
	}
	return name, nil
}

// GetBlob reads a whole blob. The error is [triggerd.ErrNotFound] when it is gone.
func (b *Bus) GetBlob(ctx context.Context, name string) ([]byte, error) {
	o, err := b.blobs.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("blob %s: %w", name, triggerd.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w: %w", name, triggerd.ErrUnavailable, err)
	}
	defer func() { _ = o.Close() }()
	var data bytes.Buffer
	if info, err := o.Info(); err == nil {
		data.Grow(int(info.Size) + bytes.MinRead)
	}
	if _, err := data.ReadFrom(o); err != nil {
		return nil, fmt.Errorf("read blob %s: %w: %w", name, triggerd.ErrUnavailable, err)
	}
	return data.Bytes(), nil
}

// DropBlob deletes a blob that its writer knows nobody names, after a refused write for example. Errors do not matter: the sweep comes by.
func (b *Bus) DropBlob(ctx context.Context, name string) {
	if info, err := b.blobs.GetInfo(ctx, name); err == nil {
		_ = b.removeBlob(ctx, b.blobEntry(name), info.NUID)
	}
}

// Sweep is what a pass of [Bus.SweepBlobs] found.
type Sweep struct {
	Blobs   int // looked at
	Deleted int // of them
	Orphans int // contents without an entry, and entries without contents, that were removed: leftovers of crashes
}

// blob is an entry of the bucket.
type blob struct {
	subject string // of the entry
	nuid    string // names the contents
}

// SweepBlobs deletes the blobs older than grace that no message in EVENTS, TURNS or THREADS names, and what crashes have left of others.
// It is safe to repeat.
func (b *Bus) SweepBlobs(ctx context.Context, grace time.Duration) (Sweep, error) {
	var res Sweep
	before := time.Now().Add(-grace)
	// Contents are written before their entry, so this order never takes a blob that is being written for a leftover.
	contents, err := b.blobContents(ctx)
	if err != nil {
		return res, err
	}
	old, gone, err := b.blobEntries(ctx, before, contents, &res)
	if err != nil {
		return res, err
	}
	for nuid, at := range contents { // what is left belongs to no entry
		if !at.Before(before) {
			continue
		}
		if err := b.purgeBlobs(ctx, b.blobChunks(nuid)); err != nil {
			return res, err
		}
		res.Orphans++
	}
	for _, subject := range gone {
		if err := b.purgeBlobs(ctx, subject); err != nil {
			return res, err
		}
		res.Orphans++
	}
	if len(old) == 0 {
		return res, nil // the usual case costs no scan of the streams
	}
	if err := b.unmark(ctx, old); err != nil {
		return res, err
	}
	for _, o := range old {
		if err := b.removeBlob(ctx, o.subject, o.nuid); err != nil {
			return res, err
		}
		res.Deleted++
	}
	return res, nil
}

// blobContents is when the last piece of each blob's contents was written.
func (b *Bus) blobContents(ctx context.Context) (map[string]time.Time, error) {
	contents := map[string]time.Time{}
	err := b.Scan(ctx, b.blobStream(), ScanOptions{Filter: b.blobChunks("*"), LastOnly: true, HeadersOnly: true}, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		contents[m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]] = meta.Timestamp
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	return contents, nil
}

// blobEntries returns the entries from before a time, by name, and the subjects of those that only say that a blob was deleted.
// Contents that belong to an entry are taken out of contents.
func (b *Bus) blobEntries(ctx context.Context, before time.Time, contents map[string]time.Time, res *Sweep) (old map[string]blob, gone []string, err error) {
	old = map[string]blob{}
	err = b.Scan(ctx, b.blobStream(), ScanOptions{Filter: "$O." + b.Names.Blobs() + ".M.>", LastOnly: true}, func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		var info jetstream.ObjectInfo
		if err := json.Unmarshal(m.Data(), &info); err != nil || info.Deleted {
			if meta.Timestamp.Before(before) {
				gone = append(gone, m.Subject())
			}
			return nil
		}
		delete(contents, info.NUID)
		res.Blobs++
		if meta.Timestamp.Before(before) {
			old[info.Name] = blob{subject: m.Subject(), nuid: info.NUID}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list blobs: %w", err)
	}
	return old, gone, nil
}

// unmark takes the blobs that a message names out of old. The streams are read in the order in which a blob's name moves through them,
// so a name that moves meanwhile is still met.
func (b *Bus) unmark(ctx context.Context, old map[string]blob) error {
	for _, stream := range []string{b.Names.Events(), b.Names.Turns(), b.Names.Threads()} {
		err := b.Scan(ctx, stream, ScanOptions{HeadersOnly: true}, func(m jetstream.Msg) error {
			for name := range strings.SplitSeq(m.Headers().Get(HeaderBlob), ",") {
				delete(old, name)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("find blobs in use: %w", err)
		}
	}
	return nil
}

// removeBlob removes the entry first: a crash in between leaves contents without an entry, which the next sweep finds.
// The bucket's own delete would leave a marker for ever.
func (b *Bus) removeBlob(ctx context.Context, entry, nuid string) error {
	if err := b.purgeBlobs(ctx, entry); err != nil {
		return err
	}
	return b.purgeBlobs(ctx, b.blobChunks(nuid))
}

func (b *Bus) purgeBlobs(ctx context.Context, subject string) error {
	s, err := b.JS.Stream(ctx, b.blobStream())
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// Subjects of the client library's object store (ADR-20).

func (b *Bus) blobStream() string { return "OBJ_" + b.Names.Blobs() }

func (b *Bus) blobChunks(nuid string) string { return "$O." + b.Names.Blobs() + ".C." + nuid }

func (b *Bus) blobEntry(name string) string {
	return "$O." + b.Names.Blobs() + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}
