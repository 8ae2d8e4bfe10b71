//go:build linux

package bus_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/bus"
	"github.com/triggerd/triggerd/bus/bustest"
)

// What a scan has still to read is replaced under it, as turns that end do: it meets the replacements, and it ends.
func TestScanOfWhatMoves(t *testing.T) {
	for name, o := range map[string]bus.ScanOptions{"everything": {}, "the newest of each": {LastOnly: true}} {
		t.Run(name, func(t *testing.T) {
			b := bustest.Open(t)
			const subjects, replaced = 4000, 500 // a scan reads 2000 ahead
			var last *bus.Pending
			for n := range subjects {
				m := nats.NewMsg(b.Names.Turn("default", "1", fmt.Sprint("h", n)))
				m.Data = []byte("old")
				last = b.PublishAsync(m)
			}
			if _, err := last.Wait(bustest.Context(t)); err != nil {
				t.Fatal(err)
			}
			newest := map[string]string{}
			err := b.Scan(bustest.Context(t), b.Names.Turns(), o, func(m jetstream.Msg) error {
				if len(newest) == 0 {
					for n := range replaced {
						mustPublish(t, b, b.Names.Turn("default", "1", fmt.Sprint("h", 3000+n)), func(m *nats.Msg) {
							m.Data = []byte("new")
							m.Header.Set(bus.HeaderRollup, bus.RollupSubject)
						})
					}
				}
				newest[m.Subject()] = string(m.Data())
				return nil
			})
			if err != nil || len(newest) != subjects {
				t.Fatalf("met %d subjects of %d, %v", len(newest), subjects, err)
			}
			for n := range replaced {
				if got := newest[b.Names.Turn("default", "1", fmt.Sprint("h", 3000+n))]; got != "new" {
					t.Fatalf("subject %d is met as %q last", 3000+n, got)
				}
			}
		})
	}
}
