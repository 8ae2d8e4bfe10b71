package daemon

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/cron"
	"github.com/triggerd/triggerd/turns"
)

// metrics are the daemon's counters. Labels are names from the configuration, never ids or payload.
type metrics struct {
	events        *prometheus.CounterVec
	duplicates    *prometheus.CounterVec
	refused       *prometheus.CounterVec
	failedFilters *prometheus.CounterVec
	slots         *prometheus.CounterVec
	reloads       prometheus.Counter
	takeovers     prometheus.Counter
	lost          prometheus.Counter
	append        prometheus.Histogram
}

func newMetrics() *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triggerd_" + name, Help: help}, []string{label})
	}
	return &metrics{
		events:        counter("events_total", "Events stored.", "connection"),
		duplicates:    counter("events_duplicate_total", "Events that were stored already.", "connection"),
		refused:       counter("events_refused_total", "Appends that failed.", "connection"),
		failedFilters: counter("verdict_errors_total", "Events on which a trigger's expression failed.", "trigger"),
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triggerd_schedule_slots_total", Help: "Slots of schedules by what became of them: fired, late, missed, backfilled.",
		}, []string{"connection", "state"}),
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{Name: "triggerd_takeovers_total", Help: "Leases that this daemon took over from another."}),
		lost:      prometheus.NewCounter(prometheus.CounterOpts{Name: "triggerd_ownership_lost_total", Help: "Times this daemon lost its membership, or a lease, to another."}),
		reloads:   prometheus.NewCounter(prometheus.CounterOpts{Name: "triggerd_reload_failures_total", Help: "Configurations that were refused."}),
		append: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triggerd_append_seconds", Help: "Time until an event is durable.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2},
		}),
	}
}

func (m *metrics) appended(connection string, rs []triggerd.Receipt, err error, took time.Duration) {
	if err != nil {
		m.refused.WithLabelValues(connection).Inc()
		return
	}
	m.append.Observe(took.Seconds())
	dup := 0
	for _, r := range rs {
		if r.Duplicate {
			dup++
		}
	}
	m.events.WithLabelValues(connection).Add(float64(len(rs) - dup))
	m.duplicates.WithLabelValues(connection).Add(float64(dup))
}

// slotsOf makes what counts the slots of a schedule.
func (m *metrics) slotsOf(connection string) func(cron.SlotState, int) {
	return func(state cron.SlotState, slots int) {
		m.slots.WithLabelValues(connection, string(state)).Add(float64(slots))
	}
}

func (m *metrics) errored(trigger string) { m.failedFilters.WithLabelValues(trigger).Inc() }

func (m *metrics) reloadFailed() { m.reloads.Inc() }

// registry serves the counters, and what the engine and the bus know, in the Prometheus format.
func (m *metrics) registry(d *Daemon) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(m.events, m.duplicates, m.refused, m.failedFilters, m.slots, m.reloads, m.append, m.takeovers, m.lost, engineCollector{d},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// engineCollector reads the engine's numbers when somebody asks, so that the hot path counts nothing twice.
type engineCollector struct{ d *Daemon }

var (
	descFinals     = prometheus.NewDesc("triggerd_turns_finished_total", "Turns that reached a final state.", []string{"state"}, nil)
	descAttempts   = prometheus.NewDesc("triggerd_attempts_total", "Attempts that ended.", nil, nil)
	descDuplicates = prometheus.NewDesc("triggerd_turns_duplicate_total", "Turns that were open already.", nil, nil)
	descUnfinished = prometheus.NewDesc("triggerd_turns", "Unfinished turns.", []string{"trigger", "state"}, nil)
	descPending    = prometheus.NewDesc("triggerd_inbox_pending", "Stored events that are not decided yet.", []string{"connection"}, nil)
	descOwner      = prometheus.NewDesc("triggerd_owner", "1 on a daemon that owns some of the work, 0 on a standby.", nil, nil)
	descLease      = prometheus.NewDesc("triggerd_lease_epoch", "Epoch of each lease that this daemon has: how often it has changed hands.", []string{"lease"}, nil)
	descRestarts   = prometheus.NewDesc("triggerd_nats_restarts_total", "Times the embedded NATS server was replaced.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descFinals, descAttempts, descDuplicates, descUnfinished, descPending, descRestarts, descOwner, descLease} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c engineCollector) Collect(ch chan<- prometheus.Metric) {
	s, counts := c.d.turnStats()
	for state, n := range s.Finals {
		ch <- prometheus.MustNewConstMetric(descFinals, prometheus.CounterValue, float64(n), string(state))
	}
	ch <- prometheus.MustNewConstMetric(descAttempts, prometheus.CounterValue, float64(s.Attempts))
	ch <- prometheus.MustNewConstMetric(descDuplicates, prometheus.CounterValue, float64(s.Duplicates))
	owner := 0.0
	if c.d.role() == "owner" {
		owner = 1
	}
	ch <- prometheus.MustNewConstMetric(descOwner, prometheus.GaugeValue, owner)
	if c.d.share != nil {
		for key, epoch := range c.d.share.epochs() {
			ch <- prometheus.MustNewConstMetric(descLease, prometheus.GaugeValue, float64(epoch), key)
		}
	}
	ch <- prometheus.MustNewConstMetric(descRestarts, prometheus.CounterValue, float64(c.d.bus.Restarts()))
	for trigger, n := range counts {
		for state, v := range map[string]int{"queued": n.Queued, "running": n.Running, "held": n.Held, "parked": n.Parked} {
			ch <- prometheus.MustNewConstMetric(descUnfinished, prometheus.GaugeValue, float64(v), trigger, state)
		}
	}
	c.d.connMu.Lock()
	defer c.d.connMu.Unlock()
	for key, conn := range c.d.conns {
		ch <- prometheus.MustNewConstMetric(descPending, prometheus.GaugeValue, float64(conn.inbox.Pending()), key)
	}
}

// pastStats are what engines counted that run no more, so that counters never fall.
type pastStats struct {
	mu sync.Mutex
	n  turns.Stats
}

// turnStats sums up over the engines of this daemon.
func (d *Daemon) turnStats() (turns.Stats, map[string]turns.Counts) {
	d.past.mu.Lock()
	defer d.past.mu.Unlock()
	var s turns.Stats
	s.Add(d.past.n)
	counts := map[string]turns.Counts{}
	engines := d.engines()
	if d.share != nil {
		s.Add(d.reader.Stats()) // it counts openings
	}
	for _, e := range engines {
		s.Add(e.Stats())
		for trigger, n := range e.Counts() {
			c := counts[trigger]
			c.Add(n)
			counts[trigger] = c
		}
	}
	return s, counts
}
