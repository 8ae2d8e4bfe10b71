package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/triggerd/triggerd/bus"
)

// epochKey counts the ownerships of an embedded store, each of which is proven by the lock on its folder.
const epochKey = "epoch"

// nextEpoch is higher than that of any run before on this store.
func nextEpoch(ctx context.Context, b *bus.Bus) (uint64, error) {
	var epoch uint64
	data, err := b.GetControl(ctx, epochKey)
	if err != nil {
		return 0, err
	}
	if data != nil {
		if err := json.Unmarshal(data, &epoch); err != nil {
			return 0, fmt.Errorf("decode epoch: %w", err)
		}
	}
	epoch++
	return epoch, b.PutControl(ctx, epochKey, mustJSON(epoch))
}
