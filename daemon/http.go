package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

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

// listen starts the public and the admin listener; the function that it returns stops taking requests and waits for those under way.
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
	mux := http.NewServeMux()
	mux.Handle("/", console.NewServer(d, d.log))
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry(d), promhttp.HandlerOpts{}))
	serve(admin, &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}) // no write time-out: a cancel answers when the turn has ended

	if cfg.Server.Listen != "off" && cfg.Server.Listen != "" {
		public, err := net.Listen("tcp", cfg.Server.Listen)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("server.listen: %w", err), stop())
		}
		mux := http.NewServeMux()
		mux.Handle("/hooks/", d.hooks)
		mux.Handle("/", console.Public(d))
		serve(public, &http.Server{
			Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		})
	}
	return stop, nil
}
