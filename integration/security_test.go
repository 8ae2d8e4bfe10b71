package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd/console"
)

// P34: what a configuration that says nothing listens on. The addresses are taken already, so the daemon has to name them.
func TestDefaultAddressesAreLoopback(t *testing.T) {
	for _, c := range []struct{ config, addr string }{
		{"nats: { embedded: { store: data, listen: 'off' } }\n", "127.0.0.1:8080"},
		{"server: { listen: 'off' }\nnats: { embedded: { store: data } }\n", "127.0.0.1:4222"},
	} {
		t.Run(c.addr, func(t *testing.T) {
			l, err := net.Listen("tcp", c.addr)
			if err == nil {
				defer func() { _ = l.Close() }()
			} else if !strings.Contains(err.Error(), "address already in use") {
				t.Fatal(err)
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "triggerd.yaml"), c.config)
			_, stderr, code := cli(t, dir, nil, "serve")
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			mustContain(t, "serve", stderr, c.addr, "address already in use")
		})
	}
}

// natsInstallation has push connections and a TCP port for apps.
func natsInstallation(t *testing.T, body string) (in *installation, url string) {
	t.Helper()
	addr := freeAddr(t)
	in = newInstallation(t, "", body)
	in.write(strings.Replace(in.read(), "listen: 'off'", "listen: "+addr, 1))
	return in, "nats://" + addr
}

// app connects with the credentials file of `apps add`; every refusal of the server goes to the channel.
func app(t *testing.T, file string) (*nats.Conn, chan error, error) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		URL, User, Password string
		InboxPrefix         string `json:"inbox_prefix"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 16)
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password), nats.CustomInboxPrefix(c.InboxPrefix), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, refused, err
}

func awaitRefusal(t *testing.T, what string, refused chan error, subject string) {
	t.Helper()
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%s is not refused", what)
	}
}

const twoPushes = `
connections:
  orders: { push: {} }
  other: { push: {} }
triggers:
  both: { connection: [orders, other], run: { exec: { command: ['true'] } } }
`

// P34: who may do what on the admin socket and on the embedded NATS server.
func TestAccess(t *testing.T) {
	in, addr := natsInstallation(t, twoPushes)
	in.run()
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if m := mode(in.socket()); m != 0o600 {
		t.Errorf("the admin socket has mode %o", m)
	}
	for name, opts := range map[string][]nats.Option{
		"no credentials": nil, "unknown user": {nats.UserInfo("eve", "x")}, "wrong password": {nats.UserInfo("orders", "x")}, "a token": {nats.Token("x")},
	} {
		if nc, err := nats.Connect(addr, opts...); err == nil || !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("%s: %v", name, err)
		}
	}
	creds := asJSON[console.AppInfo](in, "apps", "add", "orders")
	if m := mode(creds.File); m != 0o600 || creds.URL != addr || creds.Subjects != "triggerd.push.orders.>" {
		t.Errorf("apps add: %+v, file mode %o", creds, m)
	}
	nc, refused, err := app(t, creds.File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("triggerd.submit.orders.made", []byte(`{}`), 10*time.Second); err != nil {
		t.Errorf("an app's own subject: %v", err)
	}
	for _, subject := range []string{
		"triggerd.push.other.made", "triggerd.submit.other.made", "triggerd.event.orders.0.x", "triggerd.turn.default.0.x", "triggerd.cursor.orders.0",
		"triggerd.owner.orders", "$JS.API.STREAM.INFO.triggerd_EVENTS", "$JS.API.STREAM.PURGE.triggerd_PUSH_orders", "$KV.triggerd_CONTROL.pause.both", "_INBOX.x",
	} {
		if err := nc.Publish(subject, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		awaitRefusal(t, "publishing on "+subject, refused, subject)
	}
	for _, subject := range []string{">", "triggerd.>", "triggerd.push.orders.>", "_INBOX.>", "_INBOX_other.>", "$JS.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		awaitRefusal(t, "reading "+subject, refused, subject)
	}
	if evs := asJSON[[]console.EventInfo](in, "events", "list"); len(evs) != 1 || evs[0].Connection != "orders" {
		t.Errorf("events: %+v, want the one submitted", evs)
	}

	if gone := asJSON[console.AppInfo](in, "apps", "remove", "orders"); gone.Enabled {
		t.Errorf("apps remove: %+v", gone)
	}
	await(t, "the revoked app is cut off", 10*time.Second, nc.IsClosed)
	if _, err := os.Stat(creds.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the credentials are still there: %v", err)
	}
	for _, row := range asJSON[[]console.AppInfo](in, "apps", "list") {
		if row.Enabled != (row.Connection == "other") {
			t.Errorf("apps list: %+v", row)
		}
	}
}

// P35: secrets that reach actions, and come back from them in every spelling, stay out of all that is written or shown.
func TestSecretsStayInside(t *testing.T) {
	const fromEnv, fromFile, short = "env+secret/with?odd=chars&", "file secret \"quoted\" ünd", "ok"
	got := make(chan string, 16)
	echoes := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Key")
		got <- key
		_, _ = fmt.Fprintf(rw, "got %s and %s and %s", key, url.QueryEscape(key), base64.URLEncoding.EncodeToString([]byte(key)))
	}))
	t.Cleanup(echoes.Close)
	in := newInstallation(t, "", "")
	echo := in.script("echo.sh", `printf '%s\n' "$A" "$B" "$A_URL" "$A_B64"; printf 'x%s' "$B" | base64 -w0; printf '%s' "${A%"${A#????????}"}"; sleep 0.05; printf '%s\n' "${A#????????}"; printf '%s\n' "$B" >&2; echo "a book is ok"; exit $1`)
	in.write(in.read() + fmt.Sprintf(`
secrets:
  a: { env: TRIGGERD_TEST_SECRET }
  b: { file: secret }
  c: { env: TRIGGERD_TEST_SHORT }
connections:
  hook: { webhook: { verify: { scheme: bearer, secrets: [a] } } }
defaults: { triggers: { retry: { attempts: 1 } } }
triggers:
  run: { connection: hook, run: { exec: { command: [%[1]s, '0'], env: &env { A: '${{ secrets.a }}', B: '${{ secrets.b }}', C: '${{ secrets.c }}', A_URL: %[2]s, A_B64: %[3]s } } } }
  fail: { connection: hook, run: { exec: { command: [%[1]s, '1'], env: *env } } }
  call: { connection: hook, run: { http: { url: '%[4]s/effect', headers: { X-Key: '${{ secrets.a }}', X: 'Bearer ${{ secrets.b }}' } } } }
  gone: { connection: hook, run: { http: { url: 'http://127.0.0.1:1/${{ secrets.a }}?q=${{ secrets.b }}' } } }
  sent: { connection: hook, run: { publish: { subject: 'shop.x', data: '${{ secrets.a }}', headers: { X: '${{ secrets.a }}' } } } }
  badly: { connection: hook, run: { publish: { subject: 'shop.${{ secrets.a }} ${{ secrets.b }}' } } }
`, echo, url.QueryEscape(fromEnv), base64.StdEncoding.EncodeToString([]byte(fromEnv)), echoes.URL))
	writeFile(t, filepath.Join(in.dir, "secret"), fromFile+"\n")
	in.env = []string{"TRIGGERD_TEST_SECRET=" + fromEnv, "TRIGGERD_TEST_SHORT=" + short}
	p := in.run()
	in.mustPost("hook", "e", []byte(`{"n":1}`), "Authorization", "Bearer "+fromEnv)
	if a, err := in.post("hook", "f", []byte(`{}`), "Authorization", "Bearer "+fromFile); err != nil || a.Status != 401 {
		t.Errorf("wrong secret: %+v, %v", a, err)
	}
	ts := in.awaitTurns("", "six turns", 30*time.Second, allFinal(6))
	want := map[string]string{"run": "done", "fail": "dead", "call": "done", "gone": "dead", "sent": "done", "badly": "dead"}
	shown := map[string]string{"list": in.must("turns", "list", "--json"), "event": in.must("events", "show", "hook/e", "--json"), "explain": in.must("explain", "hook/e")}
	for _, turn := range ts {
		if turn.State != want[turn.Trigger] {
			t.Errorf("%s is %s: %s", turn.Trigger, turn.State, turn.Error)
		}
		shown["turn "+turn.Trigger] = in.must("turns", "show", turn.Key, "--json")
		shown["turn as text "+turn.Trigger] = in.must("turns", "show", turn.Key)
	}
	if key := <-got; key != fromEnv {
		t.Errorf("the endpoint got %q", key)
	}
	mustContain(t, "output", shown["turn run"], "[redacted]", "a book is ok")
	mustContain(t, "output", shown["turn call"], "got [redacted] and [redacted] and [redacted]")
	_, shown["metrics"] = in.admin("/metrics")
	_, shown["readyz"] = in.admin("/readyz?verbose")
	in.reload()
	p.stop()
	shown["log"] = p.log.String()
	for what, text := range shown {
		for _, leak := range leaks(text, fromEnv, fromFile) {
			t.Errorf("%s holds a secret as %q:\n%s", what, leak, text)
		}
	}
	files := 0
	for path, content := range storeFiles(t, filepath.Join(in.dir, "data")) {
		files++
		for _, leak := range leaks(content, fromEnv, fromFile) {
			t.Errorf("%s holds a secret as %q", path, leak)
		}
	}
	if files == 0 {
		t.Error("no files of the store were looked at")
	}
	if leaks("xx"+base64.StdEncoding.EncodeToString([]byte("x"+fromFile)), fromFile) == nil || leaks(url.PathEscape(fromEnv), fromEnv) == nil {
		t.Error("this test would not see a secret")
	}
}

// leaks lists the spellings of secrets that a text holds.
func leaks(text string, secrets ...string) (found []string) {
	for _, s := range secrets {
		quoted, err := json.Marshal(s)
		if err != nil {
			return []string{err.Error()}
		}
		forms := []string{s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`)}
		for shift := range 3 {
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				b := enc.EncodeToString(append(bytes.Repeat([]byte{'x'}, shift), s...))
				forms = append(forms, b[4:len(b)-4]) // without the characters that the neighbours decide
			}
		}
		for _, f := range forms {
			if strings.Contains(text, f) {
				found = append(found, f)
			}
		}
	}
	return found
}

func storeFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// P28: turns that cause each other stop after eight hops.
func TestLoopsStop(t *testing.T) {
	in, _ := natsInstallation(t, "")
	in.write(in.read() + fmt.Sprintf(`
connections:
  web: { webhook: { verify: { scheme: none } } }
  orders: { push: {} }
defaults: { triggers: { retry: { attempts: 1 } } }
triggers:
  again: { connection: web, run: { http: { url: 'http://%s/hooks/web' } } }
  echo: { connection: orders, run: { publish: { subject: triggerd.push.orders.again, jetstream: true } } }
`, in.addr))
	p := in.run()
	in.mustPost("web", "start", []byte(`{"a":1}`))
	ts := in.awaitTurns("again", "the chain of posts ends", 30*time.Second, func(ts []console.TurnInfo) bool { return count(ts, "dead") == 1 })
	if len(ts) != 9 || count(ts, "done") != 8 || ts[0].State != "dead" {
		t.Errorf("%d turns, want the first and 8 hops, the last one dead", len(ts))
	}
	last := asJSON[console.TurnDetail](in, "turns", "show", ts[0].Key)
	if last.Event.Hops != 8 || !strings.Contains(last.Error+last.Output, "loop") {
		t.Errorf("last turn: hops %d, %s, %s", last.Event.Hops, last.Error, last.Output)
	}

	nc, _, err := app(t, asJSON[console.AppInfo](in, "apps", "add", "orders").File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("triggerd.submit.orders.start", []byte(`{"a":1}`), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	in.awaitTurns("echo", "the chain of messages ends", 30*time.Second, allFinal(9))
	await(t, "the ninth message is refused", 10*time.Second, func() bool { return strings.Contains(p.log.String(), "loop") })
	hops := []int{}
	for _, ev := range asJSON[[]console.EventInfo](in, "events", "list", "--connection", "orders") {
		hops = append(hops, asJSON[console.EventDetail](in, "events", "show", fmt.Sprint(ev.Seq)).Hops)
	}
	if slices.Sort(hops); !slices.Equal(hops, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("hops of the events: %v", hops)
	}
}
