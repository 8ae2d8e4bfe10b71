package inbox

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus/bustest"
)

func TestVersions(t *testing.T) {
	dir := t.TempDir()
	b := bustest.Open(t, bustest.Store(dir))
	ctx := bustest.Context(t)
	if vs, err := LoadVersions(ctx, b, "github"); err != nil || vs != nil {
		t.Fatalf("a connection without versions: %v, %v", vs, err)
	}
	add := func(id string, from, oldest uint64, want ...Version) {
		t.Helper()
		vs, err := AddVersion(ctx, b, "github", Version{ID: id, From: from}, 1, oldest)
		if err != nil || !slices.Equal(vs, want) {
			t.Fatalf("add %s: %v, %v, want %v", id, vs, err, want)
		}
		if stored, err := LoadVersions(ctx, b, "github"); err != nil || !slices.Equal(stored, want) {
			t.Fatalf("stored: %v, %v", stored, err)
		}
	}
	v1, v2, v3 := Version{"one", 1}, Version{"two", 11}, Version{"one", 21}
	add("one", 1, 0, v1)
	add("one", 5, 0, v1) // the newest already: it decides from where it did
	add("two", 11, 0, v1, v2)
	add("one", 21, 10, v1, v2, v3) // an earlier one may come back
	if vs, err := LoadVersions(ctx, b, "git"); err != nil || vs != nil {
		t.Fatalf("a connection with a like name: %v, %v", vs, err)
	}
	for seq, want := range map[uint64]string{0: "", 1: "one", 10: "one", 11: "two", 20: "two", 21: "one", 1 << 40: "one"} {
		if got := VersionAt([]Version{v1, v2, v3}, seq); got.ID != want {
			t.Errorf("sequence %d is decided by %q, want %q", seq, got.ID, want)
		}
	}
	t.Run("what decides nothing stored any more goes", func(t *testing.T) {
		add("three", 31, 15, v2, v3, Version{"three", 31})
		add("four", 41, 40, Version{"three", 31}, Version{"four", 41})
	})
	b.Close()
	b = bustest.Open(t, bustest.Store(dir))
	t.Run("they survive a restart", func(t *testing.T) {
		if vs, err := LoadVersions(ctx, b, "github"); err != nil || len(vs) != 2 {
			t.Fatalf("%v, %v", vs, err)
		}
	})
	t.Run("damage is named", func(t *testing.T) {
		if err := b.PutControl(ctx, versionKey("github"), []byte("{")); err != nil {
			t.Fatal(err)
		}
		if vs, err := LoadVersions(ctx, b, "github"); err == nil {
			t.Fatalf("loaded %v", vs)
		}
	})
}

func TestDefinitions(t *testing.T) {
	b := bustest.Open(t)
	ctx := bustest.Context(t)
	defs := bytes.Repeat([]byte(`{"filter":"event.payload.amount > 10"}`), 1000)
	for range 2 {
		if err := SaveDefinitions(ctx, b, "abc", defs); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := LoadDefinitions(ctx, b, "abc"); err != nil || !bytes.Equal(got, defs) {
		t.Fatalf("%d bytes of %d: %v", len(got), len(defs), err)
	}
	if _, err := LoadDefinitions(ctx, b, "nothing"); !errors.Is(err, triggerd.ErrNotFound) {
		t.Fatalf("an unknown version: %v", err)
	}
	if err := b.PutControl(ctx, "definitions.bad", []byte("not gzip")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDefinitions(ctx, b, "bad"); err == nil {
		t.Fatal("damage was not noticed")
	}
}
