package natspush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/sourcetest"
)

// ready waits until the source listens: it does so before it reads the stream.
func (u *upstream) ready(r *running) {
	u.t.Helper()
	u.publish("ready", "")
	r.events(1)
}

// submit sends a request with headers given as "Name: value".
func (u *upstream) submit(typ, data string, headers ...string) (a answer, text string) {
	u.t.Helper()
	m, err := u.bus.NC.RequestMsg(message(u.o.SubmitPrefix+typ, data, headers), patience)
	if err != nil {
		u.t.Fatal(err)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		u.t.Fatalf("answer %q: %v", m.Data, err)
	}
	return a, string(m.Data)
}

func TestSubmit(t *testing.T) {
	u, mem := newUpstream(t), sourcetest.NewMemory("orders")
	mem.LimitPayload(100)
	r := u.begin(mem)
	u.ready(r)
	for _, want := range []string{`{"event":"k","duplicate":false}`, `{"event":"k","duplicate":true}`} {
		if _, text := u.submit("order.created", "1", "ce-id: k"); text != want {
			t.Errorf("answer %s, want %s", text, want)
		}
	}
	if ev := mem.Events()[1]; ev.Type != "order.created" || string(ev.Payload) != "1" {
		t.Errorf("stored %+v", ev)
	}
	if a, _ := u.submit("x", "1"); len(a.Event) != 26 || *a.Duplicate {
		t.Errorf("an id of our own: %+v", a)
	}
	refused := 0
	for name, tt := range map[string]struct {
		data   string
		header string
		status int
	}{
		"an invalid id":       {"private", "ce-id: \xff", 400},
		"invalid hops":        {"private", "Triggerd-Hops: x", 400},
		"a long chain":        {"private", "Triggerd-Hops: 9", 422},
		"too large a payload": {strings.Repeat("private", 20), "X-A: a", 413},
	} {
		refused++
		if a, text := u.submit("x", tt.data, tt.header); a.Status != tt.status || a.Error == "" || a.Duplicate != nil || a.Event != "" {
			t.Errorf("%s: %s, want %d", name, text, tt.status)
		}
	}
	for err, want := range map[error]int{
		fmt.Errorf("%w: inner detail", triggerd.ErrUnavailable): 503,
		context.DeadlineExceeded:                                503,
		errors.New("surprise: inner detail"):                    500,
	} {
		mem.FailNext(1, err)
		if a, text := u.submit("x", "private", "ce-id: again"); a.Status != want || strings.Contains(text, "detail") {
			t.Errorf("%v: %s, want %d", err, text, want)
		}
	}
	if a, _ := u.submit("x", "private", "ce-id: again"); a.Event != "again" || *a.Duplicate {
		t.Errorf("after the outage: %+v", a)
	}
	r.stop()
	if s := r.status.Snapshot(); s.Events != 4 || s.Duplicates != 1 || s.Rejected != uint64(refused) {
		t.Errorf("status %+v", s)
	}
	if strings.Contains(r.log.String(), "private") {
		t.Errorf("payload in the log: %s", r.log)
	}
}

func TestSubmitWithoutReplyIsStored(t *testing.T) {
	u := newUpstream(t)
	r := u.begin(sourcetest.NewMemory("orders"))
	u.ready(r)
	if err := u.bus.NC.PublishMsg(message(u.o.SubmitPrefix+"x", "1", nil)); err != nil {
		t.Fatal(err)
	}
	r.events(2)
}

// gate holds every append of a type until it is opened.
type gate struct {
	sources.Emitter
	typ     string
	entered chan struct{}
	open    chan struct{}
}

func (g *gate) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	if ev.Type == g.typ {
		g.entered <- struct{}{}
		<-g.open
	}
	return g.Emitter.Emit(ctx, ev)
}

func TestSubmitsRunAtOnceAndAreAnsweredAfterAStop(t *testing.T) {
	u, mem := newUpstream(t), sourcetest.NewMemory("orders")
	const n = 20
	g := &gate{Emitter: mem, typ: "held", entered: make(chan struct{}), open: make(chan struct{})}
	rt := mem.Runtime()
	rt.Emit = g
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- New(u.o).Run(ctx, rt) }()
	u.ready(&running{t: t, mem: mem, status: rt.Status})

	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if a, text := u.submit("held", "x", fmt.Sprintf("ce-id: %d", i)); a.Event != fmt.Sprint(i) {
				t.Errorf("answer %s", text)
			}
		})
	}
	for range n {
		<-g.entered // all of them, while none has ended
	}
	cancel()
	close(g.open)
	wg.Wait()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if got := len(mem.Events()); got != n+1 {
		t.Errorf("%d events", got)
	}
	if _, err := u.bus.NC.Request(u.o.SubmitPrefix+"x", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request after the end: %v", err)
	}
}

func TestASubmitThatIsFencedEndsRun(t *testing.T) {
	u, mem := newUpstream(t), sourcetest.NewMemory("orders")
	r := u.begin(mem)
	u.ready(r)
	mem.Fence()
	if a, text := u.submit("x", "1"); a.Status != 503 {
		t.Errorf("answer %s", text)
	}
	err := <-r.ended
	r.ended <- nil
	if !errors.Is(err, triggerd.ErrFenced) {
		t.Errorf("Run returned %v", err)
	}
}

// An app's own user may push and submit, and hear the answers.
func TestAnAppSubmits(t *testing.T) {
	u := newUpstream(t)
	if err := u.bus.EnsureApp("orders"); err != nil {
		t.Fatal(err)
	}
	r := u.begin(sourcetest.NewMemory("orders"))
	u.ready(r)
	nc := u.connectApp()
	m, err := nc.Request("triggerd.submit.orders.order.created", []byte("1"), patience)
	if err != nil || !strings.Contains(string(m.Data), `"duplicate":false`) {
		t.Fatalf("answer %v, error %v", m, err)
	}
	if m, err = nc.Request("triggerd.push.orders.order.created", []byte("2"), patience); err != nil || !strings.Contains(string(m.Data), `"seq"`) {
		t.Fatalf("answer %v, error %v", m, err)
	}
	r.events(3)
}

func (u *upstream) connectApp() *nats.Conn {
	u.t.Helper()
	app := u.bus.AppFor("orders")
	var file struct{ User, Password, Inbox_Prefix string }
	readJSON(u.t, app.File, &file)
	nc, err := nats.Connect(app.URL, nats.UserInfo(file.User, file.Password), nats.CustomInboxPrefix(file.Inbox_Prefix))
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(nc.Close)
	return nc
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
}
