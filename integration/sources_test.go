package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/triggerd/triggerd/console"
	"github.com/triggerd/triggerd/cron"
)

func message(subject, data string, header ...string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	for i := 0; i < len(header); i += 2 {
		m.Header[header[i]] = []string{header[i+1]}
	}
	return m
}

// An app publishes over TCP with its credentials, also while no daemon takes the messages in.
func TestPush(t *testing.T) {
	in, _ := natsInstallation(t, `
connections:
  orders: { push: {} }
triggers:
  made: { connection: orders, event: 'order.*', run: { exec: { command: [cat], stdin: '${{ event.id }} ${{ event.payload.n }}' } } }
`)
	p := in.run()
	creds := asJSON[console.AppInfo](in, "apps", "add", "orders")
	nc, refused, err := app(t, creds.File)
	if err != nil {
		t.Fatal(err)
	}
	request := func(m *nats.Msg) map[string]any {
		t.Helper()
		r, err := nc.RequestMsg(m, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var a map[string]any
		if err := json.Unmarshal(r.Data, &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	const push, submit = "triggerd.push.orders.", "triggerd.submit.orders."
	for _, m := range []*nats.Msg{
		message(push+"order.made", `{"n":1}`, "ce-id", "by-ce", "Nats-Msg-Id", "not-this"),
		message(push+"order.made", `{"n":2}`, "Nats-Msg-Id", "by-msg"),
		message(push+"order.made", `{"n":3}`),
		message(push+"order.made", `{"n":4}`, "ce-id", "by-ce"), // a duplicate
		message(push+"order.made", `{"n":5}`, "ce-id", "typed", "ce-type", "other.kind"),
	} {
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "four events", 20*time.Second, func() bool { return len(in.events("orders")) == 4 })

	t.Run("a request is answered after the append", func(t *testing.T) {
		a := request(message(submit+"order.made", `{"n":6}`, "ce-id", "asked"))
		if a["event"] != "asked" || a["duplicate"] != false {
			t.Errorf("answer: %v", a)
		}
		if ex, _ := in.explain("orders/asked"); ex.Event.Type != "order.made" {
			t.Errorf("the event right after the answer: %+v", ex.Event)
		}
		if a := request(message(submit+"order.made", `{"n":6}`, "ce-id", "asked")); a["duplicate"] != true {
			t.Errorf("the same again: %v", a)
		}
		if a := request(message(submit+"order.made", `{"n":6}`, "ce-id", "typed")); a["duplicate"] != true {
			t.Errorf("the id of a published message: %v", a)
		}
		if a := request(message(submit+"order.made", `{}`, "Triggerd-Hops", "9")); a["status"] != 422.0 || !strings.Contains(fmt.Sprint(a["error"]), "loop") {
			t.Errorf("too many hops: %v", a)
		}
	})
	outputs := func() (out []string) {
		for _, turn := range in.turns("made") {
			if turn.State == "done" {
				out = append(out, asJSON[console.TurnDetail](in, "turns", "show", turn.Hash).Output)
			}
		}
		slices.Sort(out)
		return out
	}
	in.awaitTurns("made", "four turns", 20*time.Second, allFinal(4))
	got := outputs()
	if len(got) != 4 || got[1] != "asked 6" || got[2] != "by-ce 1" || got[3] != "by-msg 2" || !strings.HasSuffix(got[0], " 3") {
		t.Errorf("outputs %q", got)
	}

	t.Run("messages that wait survive kill -9", func(t *testing.T) {
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 60 {
			if _, err := js.PublishMsgAsync(message(push+"order.made", fmt.Sprintf(`{"n":%d}`, 100+n), "ce-id", fmt.Sprint("w", n))); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-js.PublishAsyncComplete(): // the server has stored them
		case <-time.After(20 * time.Second):
			t.Fatal("the messages are not acknowledged")
		}
		p.kill()
		in.run()
		in.awaitTurns("made", "each of them has one turn", 30*time.Second, allFinal(64))
		if n := in.source("orders").Pending; n != 0 {
			t.Errorf("%d events are pending", n)
		}
	})
	select {
	case err := <-refused:
		t.Errorf("the server refused: %v", err)
	default:
	}
}

// events lists all events of a connection.
func (in *installation) events(connection string) []console.EventInfo {
	in.t.Helper()
	evs, err := in.client().Events(in.t.Context(), console.EventQuery{Connection: connection, Limit: -1})
	if err != nil {
		in.t.Fatal(err)
	}
	return evs
}

func TestFiles(t *testing.T) {
	in := newInstallation(t, "", "")
	drop := filepath.Join(in.dir, "drop")
	if err := os.MkdirAll(drop, 0o700); err != nil {
		t.Fatal(err)
	}
	in.write(in.read() + `
connections:
  drop: { files: { paths: ['drop/**/*.txt'], settle: 150ms } }
triggers:
  seen: { connection: drop, run: { exec: { command: [cat], stdin: '${{ event.type }} ${{ event.payload.name }} ${{ event.payload.content }}' } } }
`)
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(drop, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, text)
	}
	var want []string
	expect := func(what string, more ...string) {
		t.Helper()
		want = append(want, more...)
		await(t, what, 20*time.Second, func() bool {
			return len(in.events("drop")) >= len(want) && allFinal(len(in.events("drop")))(in.turns("seen"))
		})
		var got []string
		for _, turn := range in.turns("seen") {
			got = append(got, asJSON[console.TurnDetail](in, "turns", "show", turn.Hash).Output)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
	put("old.txt", "was there before")
	p := in.run()
	await(t, "the folder is watched", 20*time.Second, func() bool { return in.source("drop").State == "running" })
	put("a.txt", "one")
	put("sub/deep/b.txt", "new folders")
	put("ignored.log", "x")
	expect("created", "file.created a.txt one", "file.created b.txt new folders")
	put("a.txt", "two!")
	expect("changed", "file.changed a.txt two!")
	put("a.txt.tmp", "three")
	if err := os.Rename(filepath.Join(drop, "a.txt.tmp"), filepath.Join(drop, "a.txt")); err != nil {
		t.Fatal(err)
	}
	expect("replaced by rename", "file.changed a.txt three")

	p.stop()
	put("down.txt", "made while down")
	put("sub/deep/b.txt", "changed while down")
	p = in.run()
	expect("while down", "file.created down.txt made while down", "file.changed b.txt changed while down")
	p.kill()
	put("killed.txt", "after kill -9")
	in.run()
	expect("after kill -9", "file.created killed.txt after kill -9")
}

// P10, P13: each slot once, whatever happens to the daemon, when that takes less than a minute: under every rule of catching up.
func TestCron(t *testing.T) {
	in := newInstallation(t, "", `
triggers:
  tick: { cron: { schedule: '@every 1s', timezone: UTC, catch_up: latest }, overlap: allow, run: { exec: { command: ['true'] } } }
  none: { cron: { schedule: '@every 1s', timezone: UTC, catch_up: none }, overlap: allow, run: { exec: { command: ['true'] } } }
`)
	ticks := func(connection string) (out []cron.Tick) {
		t.Helper()
		for _, ev := range in.events(connection) {
			out = append(out, payloadOf[cron.Tick](in, connection, ev.ID))
		}
		slices.Reverse(out)
		return out
	}
	atLeast := func(n int) {
		t.Helper()
		await(t, fmt.Sprint(n, " ticks"), 30*time.Second, func() bool { return len(in.events("tick")) >= n && len(in.events("none")) >= n })
	}
	p := in.run()
	atLeast(2)
	for range 3 { // killed and started at once: about where it stopped
		p.kill()
		p = in.run()
	}
	seen := len(in.events("tick"))
	atLeast(seen + 1)
	p.signal(syscall.SIGSTOP) // a stall is not down time: every slot fires when it is over
	stalled := time.Now()
	await(t, "a stall of some slots", 10*time.Second, func() bool { return time.Since(stalled) > 2200*time.Millisecond })
	p.signal(syscall.SIGCONT)
	resumed := time.Now()
	await(t, "the slots of the stall", 20*time.Second, func() bool {
		second := resumed.Truncate(time.Second)
		return !in.events("none")[0].Time.Before(second) && !in.events("tick")[0].Time.Before(second)
	})
	p.kill()
	down := time.Now()
	await(t, "down time of some slots", 10*time.Second, func() bool { return time.Since(down) > 3200*time.Millisecond })
	p = in.run()
	up := time.Now()
	await(t, "a tick after the start", 20*time.Second, func() bool { return !in.events("tick")[0].Time.Before(up) && !in.events("none")[0].Time.Before(up) })
	p.stop()
	in.run()

	for _, connection := range []string{"tick", "none"} {
		var slots []time.Time
		for _, tick := range ticks(connection) {
			if tick.CatchUp {
				t.Errorf("%s: %s counts as missed", connection, tick.Scheduled)
			}
			slots = append(slots, tick.Scheduled)
		}
		slices.SortFunc(slots, time.Time.Compare)
		eachOnce(t, slots)
		turns := in.awaitTurns(connection, "every tick has its turn", 20*time.Second, func(ts []console.TurnInfo) bool {
			return count(ts, "done") == len(ts) && len(ts) >= len(slots)
		})
		t.Logf("%s: %d slots, %d turns", connection, len(slots), len(turns))
	}
}
