package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rawStats is what the raw side has handled.
type rawStats struct {
	Handled  int             `json:"handled"`
	P50, P99 time.Duration   `json:",omitempty"`
	times    []time.Duration `json:"-"`
	mu       sync.Mutex
}

// serveRaw is the limit to come close to: POST -> JetStream publish -> answer; one durable consumer -> ack.
func serveRaw(args []string) error {
	fs := flag.NewFlagSet("raw", flag.ExitOnError)
	dir := fs.String("dir", "", "store")
	sync := fs.String("sync", "interval", "interval or always")
	external := fs.String("nats", "", "URL of a server that runs already, in place of one in this process")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var opts []nats.Option
	if *external == "" {
		srv, err := server.NewServer(&server.Options{JetStream: true, StoreDir: *dir, DontListen: true, NoSigs: true, SyncAlways: *sync == "always", JetStreamMaxStore: 100 << 30})
		if err != nil {
			return err
		}
		go srv.Start()
		if !srv.ReadyForConnections(10 * time.Second) {
			return errors.New("server is not ready")
		}
		defer srv.Shutdown()
		opts = append(opts, nats.InProcessServer(srv))
	}
	nc, err := nats.Connect(*external, opts...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "RAW", Subjects: []string{"raw.>"}}); err != nil {
		return err
	}
	cons, err := js.CreateConsumer(ctx, "RAW", jetstream.ConsumerConfig{Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 5000})
	if err != nil {
		return err
	}
	stats := &rawStats{}
	running, err := cons.Consume(func(m jetstream.Msg) {
		if err := m.Ack(); err == nil {
			stats.add(m.Headers().Get("id"))
		}
	})
	if err != nil {
		return err
	}
	defer running.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	web := &http.Server{Handler: rawHandler(js, stats), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = web.Close()
	}()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func rawHandler(js jetstream.JetStream, stats *rawStats) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m := nats.NewMsg("raw.event")
		m.Data = b
		m.Header.Set("id", r.Header.Get("Idempotency-Key"))
		if _, err := js.PublishMsg(r.Context(), m); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		stats.mu.Lock()
		defer stats.mu.Unlock()
		stats.Handled = len(stats.times)
		if r := stats.times; len(r) > 0 {
			stats.P50, stats.P99 = quantile(r, .5), quantile(r, .99)
		}
		_ = json.NewEncoder(w).Encode(stats)
	})
	return mux
}

func (s *rawStats) add(id string) {
	began, ok := begun(id)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Since(began))
}

// runRaw measures the raw pipeline in a process of its own, on the server inside it or on the one at external.
func runRaw(ctx context.Context, s settings, sync, external string) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	dir := filepath.Join(s.dir, "raw-"+sync)
	cmd := exec.CommandContext(ctx, self, "raw", "-dir", dir, "-sync", sync, "-nats", external)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return result{}, fmt.Errorf("start: %w", err)
	}
	url = strings.TrimSpace(url)
	began := time.Now()
	acks, err := load(ctx, s, url+"/")
	if err != nil {
		return result{}, err
	}
	var st rawStats
	for st.Handled < s.events {
		if err := getJSON(ctx, url+"/stats", &st); err != nil {
			return result{}, err
		}
	}
	took := time.Since(began)
	cpu, err := cpuTime(cmd.Process.Pid)
	if err != nil {
		return result{}, err
	}
	return result{
		cpu: cpu / time.Duration(s.events), rate: float64(s.events) / took.Seconds(), ack50: quantile(acks, .5), ack99: quantile(acks, .99), handled50: st.P50, handled99: st.P99,
	}, nil
}

func getJSON(ctx context.Context, url string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return json.NewDecoder(res.Body).Decode(to)
}
