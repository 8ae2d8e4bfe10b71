package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
)

// Limits on slow senders. A request has to be sent within readTimeout; its answer comes within the append time-out.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	drainHTTP     = 10 * time.Second
)

// Limits on scrapers: nobody tells them apart, so one that hangs or comes too often must not cost more than this.
const (
	scrapeTimeout = 30 * time.Second
	maxScrapes    = 4
)

// listen starts the admin listener, the public one and the one for metrics; the function that it returns stops taking requests and waits for those under way.
func (d *Daemon) listen(cfg *configs.Config) (func() error, error) {
	var servers []*http.Server
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), drainHTTP)
		defer cancel()
		var errs []error
		for _, s := range servers {
			if err := s.Shutdown(ctx); err != nil {
				errs = append(errs, err, s.Close())
			}
		}
		return errors.Join(errs...)
	}
	serve := func(l net.Listener, s *http.Server) {
		servers = append(servers, s)
		go func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				d.fail(fmt.Errorf("serve on %s: %w", l.Addr(), err))
			}
		}()
	}
	store := cfg.NATS.Embedded.Store
	path, err := console.SocketPath(cfg.Server.Admin.Listen, store)
	if err != nil {
		return nil, fmt.Errorf("server.admin.listen: %w", err)
	}
	admin, err := console.ListenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("server.admin.listen: %w", err)
	}
	registry := d.metrics.registry(d)
	mux := http.NewServeMux()
	mux.Handle("/", console.NewServer(d, d.log))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	serve(admin, &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}) // no write time-out: a cancel answers when the turn has ended

	for _, l := range []struct {
		field, addr string
		server      *http.Server
	}{
		{"server.listen", cfg.Server.Listen, d.publicServer()},
		{"server.metrics.listen", cfg.Server.Metrics.Listen, d.metricsServer(registry)},
	} {
		if l.addr == "off" || l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", l.field, err), stop())
		}
		serve(ln, l.server)
	}
	return stop, nil
}

func (d *Daemon) publicServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/hooks/", d.hooks)
	mux.Handle("/", console.Public(d))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
	}
}

func (d *Daemon) metricsServer(registry prometheus.Gatherer) *http.Server {
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	return &http.Server{
		Handler: console.Metrics(d, metrics), ReadHeaderTimeout: headerTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}
}
