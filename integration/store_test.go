package integration

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/triggerd/triggerd/console"
)

const mib = 1 << 20

// onSmallDisk is an installation whose store has a small file system of its own.
func onSmallDisk(t *testing.T, size int64, reserve, body string) (in *installation, disk string) {
	t.Helper()
	disk = tmpfs(t, size)
	return newInstallation(t, fmt.Sprintf("  embedded: { store: %s/data, listen: 'off', reserve: %s }", disk, reserve), body), disk
}

// Below the reserve events are refused, but turns still end: the reserve is theirs. With space back, all goes on by itself.
func TestDiskBelowReserve(t *testing.T) {
	w := newWorld(t)
	release, held := w.hold(t, "held")
	in, disk := onSmallDisk(t, 64*mib, "16MiB", oneHook(w))
	in.run()
	in.mustPost("in", "held", []byte("held"))
	arrives(t, held)
	f := startTraffic(in, 4, bytes.Repeat([]byte("x"), 1024))
	f.moreAccepted(50, 10*time.Second)

	full := ballast(t, disk, 8*mib)
	f.onlyRefused(50, 10*time.Second)
	if why := in.unready(); !strings.Contains(why, "below the reserve of 16 MiB") {
		t.Errorf("not ready because of %q, want the reserve named", why)
	}
	release()
	in.awaitTurns("work", "the running turn ends on the full disk", 10*time.Second, func(ts []console.TurnInfo) bool {
		return count(ts, "done") == len(ts)
	})
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	space := time.Now()
	f.moreAccepted(50, 10*time.Second)
	back := time.Since(space)
	f.stop()
	if repeats := everyOneDone(in, w, append(f.accepted, "held")); repeats != 0 {
		t.Errorf("%d effects were repeated", repeats)
	}
	if n := in.metric("triggerd_nats_restarts_total"); n != 0 {
		t.Errorf("the server was restarted %v times: the reserve is there to prevent that", n)
	}
	t.Logf("%d accepted, %d refused (slowest %s); 50 more accepted %s after the space was back", len(f.accepted), f.refused, f.slowest, back)
}

// A disk that is really full breaks the embedded server. It is replaced in process when there is space, and nothing that was accepted is lost,
// neither by that nor by a kill -9 later.
func TestDiskReallyFull(t *testing.T) {
	w := newWorld(t)
	release, held := w.hold(t, "held")
	in, disk := onSmallDisk(t, 64*mib, "1KiB", oneHook(w))
	p := in.run()
	in.mustPost("in", "held", []byte("held"))
	arrives(t, held)
	f := startTraffic(in, 4, bytes.Repeat([]byte("x"), 16<<10))
	f.moreAccepted(20, 10*time.Second)

	var full string
	await(t, "the server has met the full disk", 20*time.Second, func() bool {
		full = ballast(t, disk, 0) // again and again: the server frees some, and its next write must fail too
		return strings.Contains(in.unready(), "restarted")
	})
	f.onlyRefused(10, 20*time.Second)
	release() // the turn ends while nothing can be recorded
	f.onlyRefused(10, 20*time.Second)
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	space := time.Now()
	f.moreAccepted(20, 20*time.Second)
	back := time.Since(space)
	f.stop()
	accepted := append(f.accepted, "held")
	if repeats := everyOneDone(in, w, accepted); repeats != 0 {
		t.Errorf("%d effects were repeated, although the daemon lived", repeats)
	}
	restarts := in.metric("triggerd_nats_restarts_total")
	if restarts < 1 {
		t.Error("the server was not replaced: this test met no write error")
	}
	await(t, "ready again", 5*time.Second, func() bool { return in.unready() == "" })
	p.kill()
	in.run()
	everyOneDone(in, w, accepted)
	t.Logf("%d accepted, %d refused (slowest %s); server replaced %v times; 20 more accepted %s after the space was back",
		len(accepted), f.refused, f.slowest, restarts, back)
}

// failsToStart wants a start to end with exit code 1 and these words in its message, and returns all that it logged.
func failsToStart(t *testing.T, in *installation, words ...string) string {
	t.Helper()
	began := time.Now()
	p := in.start()
	p.ended(10*time.Second, 1)
	for _, word := range words {
		if !strings.Contains(p.log.String(), word) {
			t.Errorf("the message does not say %q:\n%s", word, p.log)
		}
	}
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	t.Logf("after %s: %s", time.Since(began), lines[len(lines)-1])
	return p.log.String()
}

func TestStartErrors(t *testing.T) {
	w := newWorld(t)
	t.Run("disk full", func(t *testing.T) {
		in, disk := onSmallDisk(t, 32*mib, "1MiB", oneHook(w))
		full := ballast(t, disk, 4*mib)
		failsToStart(t, in, "disk is full", disk+"/data", "free some space")
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		in.run()
		in.mustPost("in", "after", []byte("x"))
	})
	t.Run("a file where the store folder should be", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(w))
		in.touch("data")
		failsToStart(t, in, "store folder", in.dir+"/data", "not a directory", "nats.embedded.store")
	})
	t.Run("a store on a read-only file system", func(t *testing.T) {
		in, disk := onSmallDisk(t, 32*mib, "1MiB", oneHook(w))
		if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		failsToStart(t, in, "store folder", disk+"/data", "read-only", "nats.embedded.store")
	})
	t.Run("a store that another daemon has", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(w))
		p := in.run()
		pid := fmt.Sprint("process ", p.cmd.Process.Pid)
		failsToStart(t, in, "in use", filepath.Join(in.dir, "data"), pid, "nats.embedded.store")
		other := newInstallation(t, fmt.Sprintf("  embedded: { store: %s/data, listen: 'off' }", in.dir), oneHook(w))
		failsToStart(t, other, "in use", pid)
		in.mustPost("in", "still-served", []byte("x"))
		in.awaitTurns("work", "the first daemon still answers its commands", 5*time.Second, allFinal(1))
	})
	t.Run("a public address that is taken", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(w))
		l, err := net.Listen("tcp", in.addr)
		if err != nil {
			t.Fatal(err)
		}
		failsToStart(t, in, "server.listen", in.addr, "address already in use")
		_ = l.Close()
		in.run()
	})
	t.Run("an address for apps that is taken", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(w))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		in.configure("listen: 'off' }", "listen: '"+l.Addr().String()+"' }")
		failsToStart(t, in, "nats.embedded.listen", l.Addr().String(), "address already in use")
		_ = l.Close()
		in.run()
	})
	t.Run("an admin socket's path that is taken", func(t *testing.T) {
		in := newInstallation(t, "", oneHook(w))
		in.touch("admin.sock")
		failsToStart(t, in, "server.admin.listen", in.socket(), "not a socket")
	})
}
