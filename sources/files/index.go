package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/triggerd/triggerd"
)

// maxIndex is how many files a cursor lists. A stored message's headers have room for 64 KiB; a full list takes 36 KiB of them,
// as base64 of JSON with base64 in it.
const maxIndex = 2000

// state is what tells one version of a file from another. Times are Unix nanoseconds.
type state struct {
	size, mtime int64
	ctime       int64 // of the last change of status, which nobody can set; not part of what makes a version
}

func (s state) same(o state) bool { return s.size == o.size && s.mtime == o.mtime }

// position is the cursor: which files were dealt with, in which state.
type position struct {
	Version  int       `json:"v"`
	Patterns string    `json:"patterns"`        // a hash: other patterns, other files
	At       time.Time `json:"at"`              // when it was made
	Before   int64     `json:"before"`          // files that are not listed are known when their ctime is not after it; 0 = none
	Files    []byte    `json:"files,omitempty"` // entries of entrySize bytes, sorted
}

// An entry is 6 bytes of a hash of the path and 4 of a hash of path and state. With 2,000 files two paths share an entry
// once in 10^8 cursors.
const (
	pathSize  = 6
	entrySize = pathSize + 4
)

func entryOf(path string, s state) (e [entrySize]byte) {
	p := sha256.Sum256([]byte(path))
	copy(e[:pathSize], p[:])
	b := binary.BigEndian.AppendUint64(p[:], uint64(s.size))
	v := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(s.mtime)))
	copy(e[pathSize:], v[:])
	return e
}

func hashPatterns(ps *patterns) string { return triggerd.HashID(ps.String()) }

// encode makes the cursor of an index. Beyond maxIndex the files whose status changed longest ago are left to `before`, which
// stays below limit: then some of them come again, but none is missed.
func encode(index map[string]state, ps *patterns, limit int64, now time.Time) triggerd.Cursor {
	type file struct {
		path string
		state
	}
	files := make([]file, 0, len(index))
	for path, s := range index {
		files = append(files, file{path, s})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(cmp.Compare(b.ctime, a.ctime), cmp.Compare(a.path, b.path)) })
	var before int64
	if len(files) > maxIndex {
		before = min(files[maxIndex].ctime, limit-1)
		files = files[:maxIndex]
	}
	entries := make([][entrySize]byte, len(files))
	for i, f := range files {
		entries[i] = entryOf(f.path, f.state)
	}
	slices.SortFunc(entries, func(a, b [entrySize]byte) int { return slices.Compare(a[:], b[:]) })
	p := position{Version: 1, Patterns: hashPatterns(ps), At: now.UTC(), Before: before}
	for _, e := range entries {
		p.Files = append(p.Files, e[:]...)
	}
	c, _ := json.Marshal(p) // plain fields always marshal
	return c
}

// memory is a decoded cursor.
type memory struct {
	position
	known   map[[pathSize]byte][entrySize - pathSize]byte
	changed bool // the patterns are others than those of the cursor
}

func decode(c triggerd.Cursor, ps *patterns) (*memory, error) {
	m := &memory{known: make(map[[pathSize]byte][entrySize - pathSize]byte)}
	if err := json.Unmarshal(c, &m.position); err != nil {
		return nil, errors.New("stored position is not readable") // the JSON error would quote it
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("stored position has version %d, this version of triggerd reads 1", m.Version)
	}
	if len(m.Files)%entrySize != 0 {
		return nil, errors.New("stored position is cut off")
	}
	for b := m.Files; len(b) > 0; b = b[entrySize:] {
		m.known[[pathSize]byte(b)] = [entrySize - pathSize]byte(b[pathSize:])
	}
	m.changed = m.Patterns != hashPatterns(ps)
	return m, nil
}

// Verdicts of a memory on a file.
const (
	isNew     = iota // it appeared while nobody looked
	isChanged        // it was there, in another state
	isKnown
)

func (m *memory) verdict(path string, s state) int {
	e := entryOf(path, s)
	stored, listed := m.known[[pathSize]byte(e[:])]
	switch {
	case listed && stored == [entrySize - pathSize]byte(e[pathSize:]):
		return isKnown
	case listed:
		return isChanged
	case s.ctime <= m.Before:
		return isKnown
	case m.changed && s.ctime <= m.At.UnixNano():
		return isKnown // it matches only since the patterns changed
	}
	return isNew
}
