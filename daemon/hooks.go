package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/expr"
	"github.com/triggerd/triggerd/sources"
	"github.com/triggerd/triggerd/sources/webhook"
)

// routeHooks publishes the routes of all webhooks in one step: a request finds the old handler or the new one, never none.
// Webhooks have no owner: every daemon takes them, and a connection is in one of them at least while one is restarted.
func (d *Daemon) routeHooks(p *plan) error {
	routes := map[string]*webhook.Handler{}
	var errs []error
	for name, c := range p.config.Connections {
		if c.Webhook == nil {
			continue
		}
		key := p.keyOf[name]
		status := d.statusOf(key)
		hook, err := d.webhook(name, c.Webhook, status, sources.Observe(&taker{emitter{d: d, key: key}}, status))
		if err != nil {
			errs = append(errs, fmt.Errorf("connection %s: %w", name, err))
			continue
		}
		routes[name] = hook
		status.Running()
	}
	d.hooks.Set(routes)
	return errors.Join(errs...)
}

// taker stores events of a connection that this daemon need not own. It refuses them until an owner has recorded by which configuration
// they are decided: events from before that would be decided by none.
type taker struct{ emitter }

// Emit implements [sources.Emitter].
func (t *taker) Emit(ctx context.Context, ev triggerd.Event) (triggerd.Receipt, error) {
	if err := t.d.taken(ctx, t.key); err != nil {
		return triggerd.Receipt{}, err
	}
	return t.emitter.Emit(ctx, ev)
}

func (d *Daemon) webhook(name string, w *configs.Webhook, status *sources.Status, emit sources.Emitter) (*webhook.Handler, error) {
	o := webhook.Options{Connection: name, Scheme: w.Verify.Scheme, MaxBody: int64(w.MaxBody), Emit: emit, Log: d.log, Status: status}
	if len(w.Verify.Secrets) > 0 {
		o.Secrets = func() ([]string, error) {
			var values []string
			for _, s := range w.Verify.Secrets {
				v, err := d.secrets.Load().Get(s)
				if err != nil {
					return nil, err
				}
				values = append(values, v)
			}
			return values, nil
		}
	}
	for _, e := range []struct {
		src string
		to  **expr.Program
	}{{w.ID, &o.ID}, {w.Type, &o.Type}} {
		if e.src == "" {
			continue
		}
		p, err := expr.CompileKey(e.src, expr.Request)
		if err != nil {
			return nil, err
		}
		*e.to = p
	}
	return webhook.New(o)
}
