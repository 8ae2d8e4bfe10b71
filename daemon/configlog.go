package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/bus"
)

// configRecord is a configuration that a daemon has run with. Which of two is newer is said by the order in which they were made known: a hash has none.
type configRecord struct {
	Version    string    `json:"version"`
	Generation int       `json:"generation,omitempty"`
	Daemon     string    `json:"daemon"`
	Since      time.Time `json:"since"` // for people
}

// configsMax bounds the configurations that are remembered: one that is older than all of them counts as new.
const configsMax = 64

// makeKnown makes a configuration the newest one, unless it was so once and others have come after it: then it is an old one, as in the middle of a rolling
// restart, and false is returned. A chosen one, by a reload or because nobody has a newer one any more, always becomes the newest.
// A lower generation than that of the newest never does.
func makeKnown(ctx context.Context, b *bus.Bus, r configRecord, chosen bool) (bool, error) {
	for {
		known, revision, err := readConfigs(ctx, b)
		if err != nil {
			return false, err
		}
		if n := len(known); n > 0 {
			newest := known[n-1]
			seen := slices.ContainsFunc(known, func(k configRecord) bool { return k.Version == r.Version && k.Generation == r.Generation })
			switch {
			case newest.Version == r.Version && newest.Generation == r.Generation:
				return true, nil
			case r.Generation < newest.Generation:
				return false, nil
			case seen && !chosen && r.Generation == newest.Generation:
				return false, nil
			}
		}
		known = slices.DeleteFunc(known, func(k configRecord) bool { return k.Version == r.Version })
		known = append(known, r)
		known = known[max(0, len(known)-configsMax):]
		_, err = b.SwapControl(ctx, configsKey, mustJSON(known), revision)
		switch {
		case err == nil:
			return true, nil
		case !bus.Conflict(err):
			return false, fmt.Errorf("make the configuration known: %w: %w", triggerd.ErrUnavailable, err)
		case !bus.Pause(ctx, 20*time.Millisecond):
			return false, fmt.Errorf("make the configuration known: %w", triggerd.ErrUnavailable)
		}
	}
}

func readConfigs(ctx context.Context, b *bus.Bus) ([]configRecord, uint64, error) {
	m, err := b.LastControl(ctx, configsKey)
	if err != nil || m == nil {
		return nil, 0, err
	}
	var known []configRecord
	if err := json.Unmarshal(m.Data, &known); err != nil {
		return nil, 0, fmt.Errorf("decode configurations: %w", err)
	}
	return known, m.Sequence, nil
}
