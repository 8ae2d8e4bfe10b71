package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A daemon that takes nothing from its connection for a while is a slow consumer, whose connection the server closes with all that was on its way. It was
// frozen for so short that it keeps its work, and nothing is lost or done twice.
func TestSlowConsumer(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	config, serverLog := filepath.Join(dir, "nats.conf"), filepath.Join(dir, "nats.log")
	if err := os.WriteFile(config, []byte("write_deadline: \"200ms\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := newNATS(t, []string{"-c", config, "-l", serverLog})
	log := newEffectLog(t, shortEffects)
	f := newFleet(t, 2, on(server.url()), fleetConfig(log))
	owner := f.members[0]
	if f.members[1].owns("in") {
		owner = f.members[1]
	}
	other := f.other(owner)
	l := &flow{f: f, accepted: map[string]time.Time{}, numbers: map[string]int{}}
	slow := func() bool {
		said, err := os.ReadFile(serverLog)
		return err == nil && strings.Contains(string(said), "Slow Consumer")
	}

	owner.freeze()
	frozen := time.Now()
	var senders sync.WaitGroup
	for thread := range 32 {
		senders.Go(func() {
			// Far more than the buffers of the operating system hold, together.
			for n := 0; n < 20 && time.Since(frozen) < keepsWork; n++ {
				id, body := numbered(thread, n)
				body = fmt.Appendf(nil, `{"pad":%q,%s`, strings.Repeat("x", 64<<10), body[1:])
				if a := other.postPatiently(id, body); a.Status != http.StatusAccepted {
					t.Errorf("post %s: %+v", id, a)
					return
				}
				l.mu.Lock()
				l.accepted[id], l.numbers[id] = time.Now(), n
				l.mu.Unlock()
			}
		})
	}
	senders.Wait()
	await(t, "the server calls the frozen daemon slow", keepsWork, slow)
	owner.thaw()
	repeated := checkFleet(f, l, log, nil)
	if dead := f.declaredDead(); dead != 0 {
		t.Errorf("%d daemons were taken for dead", dead)
	}
	t.Logf("%d events, %d effects repeated", len(l.ids()), repeated)
}

// owns reports whether a daemon says that it runs a connection.
func (m *member) owns(connection string) bool {
	for _, c := range m.self().Connections {
		if c == connection {
			return true
		}
	}
	return false
}
