package bus

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/triggerd/triggerd"
)

// Keys are listed whole or not at all, without those that were deleted, and read as they are.
func TestControlKeys(t *testing.T) {
	b, err := Open(t.Context(), Options{Prefix: "triggerd", Log: zerolog.Nop(), Embedded: &EmbeddedOptions{Store: t.TempDir(), Sync: SyncInterval, Reserve: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, key := range []string{"pause.c", "pause.a", "pause.gone", "pause.dropped", "lanes.x.y", "pause.a"} {
		if err := b.PutControl(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Control.Delete(t.Context(), "pause.gone"), b.Control.Purge(t.Context(), "pause.dropped")); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string][]string{"pause.*": {"pause.a", "pause.c"}, "lanes.x.*": {"lanes.x.y"}, "lanes.z.*": nil} {
		if keys, err := b.ControlKeys(t.Context(), pattern); err != nil || !slices.Equal(keys, want) {
			t.Errorf("%s: %v, %v, want %v", pattern, keys, err, want)
		}
	}
	for key, want := range map[string]string{"pause.a": "pause.a", "pause.gone": "", "pause.dropped": "", "never": ""} {
		if v, err := b.GetControl(t.Context(), key); err != nil || string(v) != want || v == nil != (want == "") {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if keys, err := b.ControlKeys(over, "pause.*"); !errors.Is(err, triggerd.ErrUnavailable) {
		t.Errorf("after the end of its context: %v, %v", keys, err)
	}
}
