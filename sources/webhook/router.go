package webhook

import (
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
)

// pathPrefix is where the webhooks are; a connection's name follows.
const pathPrefix = "/hooks/"

// Router serves /hooks/<connection> from a table that is replaced as a whole. It is safe for concurrent use.
type Router struct {
	table atomic.Pointer[map[string]*Handler]
}

// NewRouter returns a router without routes.
func NewRouter() *Router {
	r := new(Router)
	r.Set(nil)
	return r
}

// Set replaces all routes in one step: a request finds the old table or the new one. Requests under way finish on the handler
// that they began with. The map may be changed afterwards.
func (r *Router) Set(routes map[string]*Handler) {
	table := maps.Clone(routes)
	r.table.Store(&table)
}

// ServeHTTP hands the request to its connection's handler; 404 where there is none.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if name, ok := strings.CutPrefix(req.URL.Path, pathPrefix); ok {
		if h := (*r.table.Load())[name]; h != nil {
			h.ServeHTTP(w, req)
			return
		}
	}
	fail(w, http.StatusNotFound, "there is no such webhook")
}
