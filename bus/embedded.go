package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// Sync modes of the embedded server (design §4).
const (
	SyncGroup    = "group"    // one file system sync for all appends that wait: survives power loss
	SyncAlways   = "always"   // the server syncs each message: survives power loss
	SyncInterval = "interval" // the server syncs now and then: survives kill -9, not power loss
)

// EmbeddedOptions configure the server inside the daemon.
type EmbeddedOptions struct {
	Store        string // folder; created with mode 0700
	Sync         string
	SyncInterval time.Duration // with SyncInterval
	Listen       string        // host:port for apps; "" or "off" = none
	MaxStore     int64         // bytes of disk; 0 = 100 GiB. Set by us because the server's own default depends on the free space at start
	MaxPayload   int64         // bytes of one app message; at least 1 MiB is used
	Reserve      int64         // bytes of free space below which events are refused; 0 = 5 % of the disk, at least 256 MiB
}

const (
	startTimeout    = 30 * time.Second // recovery of a large store after a crash
	defaultMaxStore = 100 << 30
	minReserve      = 256 << 20
	defaultPayload  = 1 << 20
	// minToStart is what the server needs to create its files; below it a start would fail half way.
	minToStart   = 8 << 20
	filesToStart = 64 // a new store has about 40
)

// embedded owns the server, which may be replaced by a fresh one after a write error, and the lock on the store.
type embedded struct {
	opts     EmbeddedOptions
	names    Names
	log      zerolog.Logger
	password string // of the daemon's own user; never leaves the process
	lock     *storeLock
	apps     *apps

	mu   sync.Mutex
	srv  *server.Server
	port int // of the first start, so that apps find a server that replaced it
}

func startEmbedded(ctx context.Context, o EmbeddedOptions, n Names, log zerolog.Logger) (_ *embedded, err error) {
	if o.Sync == SyncGroup && !groupSyncSupported {
		return nil, errors.New("nats.embedded.sync: group needs Linux; use sync: always")
	}
	if err := os.MkdirAll(o.Store, 0o700); err != nil {
		return nil, storeError("create store folder", o.Store, err)
	}
	lock, err := lockStore(o.Store)
	if err != nil {
		return nil, err
	}
	e := &embedded{opts: o, names: n, log: log, lock: lock, password: rand.Text()}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	free, total, err := freeBytes(o.Store)
	if err != nil {
		return nil, err
	}
	if free < minToStart {
		return nil, fmt.Errorf("%w: %s has %d bytes left, starting needs %d: free some space or move nats.embedded.store", ErrDiskFull, o.Store, free, int64(minToStart))
	}
	if e.opts.Reserve == 0 {
		e.opts.Reserve = max(total/20, minReserve)
	}
	if e.apps, err = loadApps(o.Store); err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// serverOptions are those of a start or a reload; the user of the connection that waits is left out.
func (e *embedded) serverOptions(waits string) (*server.Options, error) {
	o := &server.Options{
		ServerName:             "triggerd",
		JetStream:              true,
		StoreDir:               e.opts.Store,
		JetStreamMaxStore:      e.opts.MaxStore,
		SyncAlways:             e.opts.Sync == SyncAlways,
		MaxPayload:             int32(max(e.opts.MaxPayload, defaultPayload)),
		MaxPending:             512 << 20, // the daemon's own consumers may be slow; they are bounded by their own limits
		NoSigs:                 true,      // signals are the daemon's
		DisableJetStreamBanner: true,
		// Each connection's inbox is a consumer; the server's own limit is 1000 of them.
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1},
	}
	if o.JetStreamMaxStore == 0 {
		o.JetStreamMaxStore = defaultMaxStore
	}
	if e.opts.Sync == SyncInterval && e.opts.SyncInterval > 0 {
		o.SyncInterval = e.opts.SyncInterval
	}
	if err := o.ProcessConfigString(e.accounts(waits)); err != nil {
		return nil, fmt.Errorf("set up app users: %w", err)
	}
	if e.opts.Listen == "" || e.opts.Listen == "off" {
		o.DontListen = true
		return o, nil
	}
	host, port, err := net.SplitHostPort(e.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("nats.embedded.listen: %w", err)
	}
	if o.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("nats.embedded.listen: port %q is not a number", port)
	}
	if o.Port == 0 {
		e.mu.Lock()
		o.Port = e.port
		e.mu.Unlock()
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	o.Host = host
	return o, nil
}

// start runs a fresh server on the store and blocks until it takes connections.
func (e *embedded) start(ctx context.Context) error {
	o, err := e.serverOptions("")
	if err != nil {
		return err
	}
	if !o.DontListen && o.Port > 0 {
		// The server only logs that its port is taken; ask first, so that the operator gets an error.
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
		if err != nil {
			return fmt.Errorf("listen for apps on nats.embedded.listen: %w (choose another address, or \"off\")", err)
		}
		_ = l.Close()
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("set up the embedded NATS server: %w", err)
	}
	logger := &serverLogger{log: e.log}
	srv.SetLoggerV2(logger, false, false, false)
	go srv.Start()
	if err := awaitReady(ctx, srv, logger); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("start the embedded NATS server: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srv = srv
	if addr, ok := srv.Addr().(*net.TCPAddr); ok {
		e.port = addr.Port
	}
	return nil
}

// awaitReady blocks until srv takes connections and JetStream works, or the start has failed.
func awaitReady(ctx context.Context, srv *server.Server, logger *serverLogger) error {
	for deadline := time.Now().Add(startTimeout); ; {
		switch ready := srv.ReadyForConnections(100 * time.Millisecond); {
		case logger.fatalError() != nil:
			return logger.fatalError()
		case ready && srv.JetStreamEnabled():
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case ready, time.Now().After(deadline):
			return errOr(logger.lastError(), errors.New("not ready in time"))
		}
	}
}

// InProcessConn connects to the present server; the NATS client calls it again for each reconnect, so it finds the server that replaced a broken one.
func (e *embedded) InProcessConn() (net.Conn, error) {
	srv := e.server()
	if srv == nil {
		return nil, errors.New("embedded NATS server is not running")
	}
	return srv.InProcessConn()
}

func (e *embedded) server() *server.Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.srv
}

func (e *embedded) stopServer() {
	e.mu.Lock()
	srv := e.srv
	e.srv = nil
	e.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

func (e *embedded) close() {
	e.stopServer()
	e.lock.release()
}

// clientURL is where apps connect; "" when the server does not listen.
func (e *embedded) clientURL() string {
	srv := e.server()
	if srv == nil {
		return ""
	}
	addr, ok := srv.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere; an app elsewhere puts this host's name there
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// serverLogger hands the server's warnings and errors to our log, and remembers the last error for a failed start.
type serverLogger struct {
	log zerolog.Logger

	mu          sync.Mutex
	last, fatal error
}

func (l *serverLogger) Noticef(format string, v ...any) { l.log.Debug().Msgf("nats: "+format, v...) }
func (l *serverLogger) Debugf(string, ...any)           {}
func (l *serverLogger) Tracef(string, ...any)           {}
func (l *serverLogger) Warnf(format string, v ...any)   { l.log.Debug().Msgf("nats: "+format, v...) }

func (l *serverLogger) Errorf(format string, v ...any) {
	l.mu.Lock()
	l.last = fmt.Errorf(format, v...)
	l.mu.Unlock()
	l.log.Warn().Msgf("nats: "+format, v...)
}

// Fatalf does not end the process: the start fails with this message instead.
func (l *serverLogger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.fatal = fmt.Errorf(format, v...)
	l.mu.Unlock()
	l.log.Error().Msgf("nats: "+format, v...)
}

func (l *serverLogger) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *serverLogger) fatalError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
