package inbox

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// BenchmarkAppend stores events of 1 KiB from 64 writers.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []string{bus.SyncInterval, bus.SyncGroup, bus.SyncAlways} {
		b.Run(mode, func(b *testing.B) {
			a := NewAppender(bustest.Open(b, bustest.Sync(mode)))
			payload := bytes.Repeat([]byte("x"), 1<<10)
			var n atomic.Int64
			b.SetParallelism(32) // times two processors
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ev := testEvent("github", fmt.Sprint("n", n.Add(1)))
					ev.Payload = payload
					if _, err := a.Append(context.Background(), ev, bus.Fence{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
