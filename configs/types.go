package configs

import "time"

// Struct tags carry what the decoder, the defaults, the checks and the JSON Schema need to know of a field,
// so that a new field needs no code of its own:
//
//	yaml      the key
//	default   the value of a key that is left out
//	enum      the words that are allowed, parted by '|'; "later" lists words that are known and refused for now
//	min, max  bounds, both included
//	required  "true": the key must be there
//	size      how many items a list must have at least
//	format    "name", "timezone" or "labels"
//	kind      exactly one of the fields of this kind is set: "source", "action" or "times"
//	expr      CEL: "filter", "key" or "request"
//	template  text with ${{ CEL }}: "action" or "decision"
//	path      a path relative to the file that names it: "file" or "glob"
//	short     on the blank field of a struct: the key that a plain string stands for

// Config is one whole, checked configuration. Defaults are filled in, paths are absolute, `${VAR}` is expanded;
// `${{ ... }}` and secret references are left as they were written.
type Config struct {
	Generation  int                   `yaml:"generation" min:"0"` // Counts up from one configuration to the next where several daemons share a NATS: one with a lower number than the last owner's takes over nothing.
	Server      Server                `yaml:"server"`             // What the daemon listens on and how much it does at once.
	NATS        NATS                  `yaml:"nats"`               // The NATS server that stores everything.
	History     History               `yaml:"history"`            // How much is kept.
	Defaults    Defaults              `yaml:"defaults"`           // What applies where a connection or trigger says nothing.
	Secrets     map[string]Secret     `yaml:"secrets"`            // Where secret values come from, by name.
	Connections map[string]Connection `yaml:"connections"`        // Sources of events, by name. A trigger's inline source is a connection under the trigger's name.
	Triggers    map[string]Trigger    `yaml:"triggers"`           // Rules, by name: which events, and what to run.

	sources []string // files, folders and secret files: see Sources
}

// Server is what the daemon listens on and how much it does at once.
type Server struct {
	Listen       string            `yaml:"listen" default:"127.0.0.1:8080"`              // Public listener, host:port; "off" for none.
	Admin        Admin             `yaml:"admin"`                                        // The commands' API.
	Metrics      Metrics           `yaml:"metrics"`                                      // A listener for Prometheus.
	Labels       map[string]string `yaml:"labels" format:"labels"`                       // What this daemon has: what says runs_on runs on the daemons that have all of the labels named there.
	Concurrency  int               `yaml:"concurrency" default:"64" min:"1" max:"10000"` // Turns that run at once on this daemon.
	DrainTimeout Duration          `yaml:"drain_timeout" default:"10s" max:"1h"`         // How long SIGTERM waits for running turns before it cuts them short.
}

// Metrics is the address of a listener that serves GET /metrics, /healthz and /readyz and nothing else. It asks nobody who they are.
type Metrics struct {
	Listen string `yaml:"listen" default:"off"` // host:port, for example 127.0.0.1:9464; "off" for none. Keep it private: it has no authentication.
}

// Admin is the admin API's address.
type Admin struct {
	Listen string `yaml:"listen"` // "unix:<path>"; default <store>/admin.sock, or below $XDG_RUNTIME_DIR where that path is too long for a socket.
}

// NATS names the server that stores everything: embedded by default, external with url.
type NATS struct {
	Embedded Embedded   `yaml:"embedded"`                                // The server inside the daemon.
	URL      StringList `yaml:"url" size:"1"`                            // nats:// or tls:// URLs of an external server, in place of the embedded one.
	Creds    string     `yaml:"creds" path:"file"`                       // A .creds file, for an external server.
	NKey     string     `yaml:"nkey" path:"file"`                        // An nkey seed file, for an external server.
	Token    string     `yaml:"token"`                                   // A token for an external server; ${{ secrets.NAME }} names a secret.
	TLS      TLS        `yaml:"tls"`                                     // Certificates for an external server.
	Replicas int        `yaml:"replicas" default:"1" min:"1" max:"5"`    // Copies of each stream on an external cluster.
	Prefix   string     `yaml:"prefix" default:"triggerd" format:"name"` // First token of every subject and stream name.
	Domain   string     `yaml:"domain" format:"name"`                    // JetStream domain of an external server.
}

// Sync modes of the embedded server (design §4).
const (
	SyncGroup    = "group"
	SyncAlways   = "always"
	SyncInterval = "interval"
)

// Embedded configures the NATS server inside the daemon. It is left zero when an external server is named.
type Embedded struct {
	Store        string   `yaml:"store"`                                             // The store folder, relative to the working directory; default $STATE_DIRECTORY, else ./data.
	Sync         string   `yaml:"sync" enum:"group|always|interval"`                 // What an acknowledged write has survived: group or always = power loss, interval = a crash of the daemon. Default group on Linux, always elsewhere.
	SyncInterval Duration `yaml:"sync_interval" default:"2m" min:"10ms" max:"1h"`    // With sync: interval, the time between syncs.
	Listen       string   `yaml:"listen" default:"127.0.0.1:4222"`                   // Address for apps, host:port; "off" for none.
	MaxStore     Size     `yaml:"max_store" default:"100GiB" min:"16MiB"`            // Disk that the streams may use.
	MaxPayload   Size     `yaml:"max_payload" default:"1MiB" min:"1KiB" max:"64MiB"` // Largest NATS message that an app may send.
	Reserve      Size     `yaml:"reserve"`                                           // Free disk space below which events are refused; default 5 % of the disk, at least 256MiB.
}

// TLS configures the connection to external servers.
type TLS struct {
	CA   string `yaml:"ca" path:"file"`   // Certificate authorities, PEM.
	Cert string `yaml:"cert" path:"file"` // Client certificate, PEM.
	Key  string `yaml:"key" path:"file"`  // Client key, PEM.
}

// History bounds what is kept (P26).
type History struct {
	Events     Duration `yaml:"events" default:"7d" min:"1s"`           // Age of handled events: the horizon for duplicates.
	EventsSize Size     `yaml:"events_size" default:"10GiB" min:"1MiB"` // Bytes of events.
	Turns      Duration `yaml:"turns" default:"30d" min:"1s"`           // Age of finished turns, never shorter than events.
}

// Defaults apply where a connection or a trigger says nothing.
type Defaults struct {
	Timezone string          `yaml:"timezone" format:"timezone"` // IANA zone of schedules.
	Triggers TriggerDefaults `yaml:"triggers"`                   // Defaults of triggers.
}

// TriggerDefaults are defaults of triggers.
type TriggerDefaults struct {
	Timeout Duration `yaml:"timeout" default:"1h" min:"1ms"` // How long one attempt may take.
	Retry   Retry    `yaml:"retry"`                          // Repeats of a failing action.
}

// Secret says where a value comes from. Exactly one field is set.
type Secret struct {
	Env  string `yaml:"env"`              // An environment variable.
	File string `yaml:"file" path:"file"` // A file; its final newline is trimmed, and it is read again when it changes.
}

// Connection is one source. Exactly one of the kinds is set.
type Connection struct {
	Webhook     *Webhook          `yaml:"webhook" kind:"source"`      // Receives POST /hooks/<connection>.
	Cron        *Cron             `yaml:"cron" kind:"source"`         // A schedule.
	Push        *Push             `yaml:"push" kind:"source"`         // Apps publish on <prefix>.push.<connection>.<type>.
	Files       *Files            `yaml:"files" kind:"source"`        // Watches paths.
	RenamedFrom string            `yaml:"renamed_from" format:"name"` // The name that this connection had before: its position and duplicates stay. Inherited by inline sources.
	RunsOn      map[string]string `yaml:"runs_on" format:"labels"`    // Which daemons may run it: those whose server.labels have all of these. None = any. Triggers inherit it.
	Labels      map[string]string `yaml:"labels"`                     // Free labels.
}

// Webhook receives POST /hooks/<connection>.
type Webhook struct {
	Verify  Verify `yaml:"verify" required:"true"`                      // Required: who may send.
	ID      string `yaml:"id" expr:"request"`                           // CEL over request: the event id.
	Type    string `yaml:"type" expr:"request"`                         // CEL over request: the event type; default ce-type, else "webhook.received".
	MaxBody Size   `yaml:"max_body" default:"1MiB" min:"1" max:"64MiB"` // Largest body that is taken.
}

// Verify schemes of this version.
const (
	VerifyBearer = "bearer"
	VerifyNone   = "none"
)

// Verify says how a webhook's sender is recognised.
type Verify struct {
	Scheme  string     `yaml:"scheme" required:"true" enum:"bearer|none" later:"basic|github|gitlab|hmac|slack|standard|stripe"` // bearer, or none for anybody.
	Secrets StringList `yaml:"secrets" size:"1"`                                                                                 // Names of secrets; any of them is accepted, so that they can be rotated.
}

// Cron is a schedule. A plain string in the file is the schedule.
type Cron struct {
	_             struct{}   `short:"schedule"`
	Schedule      string     `yaml:"schedule" kind:"times"`                             // Five fields, a @descriptor or "@every <duration>"; see docs/schedules.md. This or at is required.
	Seconds       bool       `yaml:"seconds"`                                           // The schedule has six fields, the first of which is the second.
	At            StringList `yaml:"at" kind:"times" size:"1"`                          // Single instants in place of a schedule, for example 2026-12-24T18:00:00Z.
	Timezone      string     `yaml:"timezone" format:"timezone"`                        // IANA zone; default defaults.timezone. One of the two is required for a schedule.
	DST           DST        `yaml:"dst"`                                               // What daylight saving does to fixed times.
	CatchUp       string     `yaml:"catch_up" default:"latest" enum:"latest|none|all"`  // What to do about slots that passed while the daemon was down: fire the latest, none, or all of them, in order.
	CatchUpWindow Duration   `yaml:"catch_up_window" default:"24h" min:"1s" max:"366d"` // How old a missed slot may be and still fire.
	CatchUpLimit  int        `yaml:"catch_up_limit" default:"100" min:"1" max:"10000"`  // How many missed slots fire at most with catch_up: all; the newest do.
	Jitter        Duration   `yaml:"jitter" max:"24h"`                                  // Each slot fires up to this much later, by an amount of its own. Its id stays the time that it is scheduled for.
	Start         string     `yaml:"start"`                                             // No slot before this: a date in the zone, or an instant.
	End           string     `yaml:"end"`                                               // No slot after this: a date in the zone (that day is included), or an instant.
	Exclude       StringList `yaml:"exclude"`                                           // Dates without a slot, for example 2026-12-25, and schedules in whose minutes there is none.
}

// DST says what becomes of a fixed time (one whose minute and hour name times) when the clock skips it or shows it twice.
type DST struct {
	Gap  string `yaml:"gap" default:"fire_after" enum:"fire_after|skip"` // A time that does not exist fires right after the gap, or not at all.
	Fold string `yaml:"fold" default:"first" enum:"first|both"`          // A time that comes twice fires on the first occurrence, or on both.
}

// Push lets apps publish on <prefix>.push.<connection>.<type>.
type Push struct {
	MaxBytes Size `yaml:"max_bytes" default:"1GiB" min:"1MiB"` // Bytes of messages that wait to be taken in.
}

// Files watches paths.
type Files struct {
	Paths   StringList `yaml:"paths" required:"true" size:"1" path:"glob"` // Globs; ** is any number of folders, {name} captures a part.
	Exclude StringList `yaml:"exclude"`                                    // Globs of what to leave out.
	Settle  Duration   `yaml:"settle" default:"2s" min:"10ms" max:"1h"`    // Quiet time before a change counts.
	MaxRead Size       `yaml:"max_read" default:"64KiB" max:"48MiB"`       // Contents up to this size become the payload's "content"; 0 = never.
}

// Trigger is one rule: which events, and what to run.
type Trigger struct {
	Connection StringList `yaml:"connection" size:"1"`   // Names of connections, or one of the inline sources.
	Webhook    *Webhook   `yaml:"webhook" kind:"source"` // An inline source: a connection named after the trigger.
	Cron       *Cron      `yaml:"cron" kind:"source"`    // An inline source: a connection named after the trigger.
	Push       *Push      `yaml:"push" kind:"source"`    // An inline source: a connection named after the trigger.
	Files      *Files     `yaml:"files" kind:"source"`   // An inline source: a connection named after the trigger.

	Event          StringList        `yaml:"event" size:"1"`                                                      // Globs of event types; default: all but "gap".
	Filter         string            `yaml:"filter" expr:"filter"`                                                // CEL that must be true.
	Thread         Thread            `yaml:"thread"`                                                              // Turns of one thread run one at a time, in order.
	Input          *string           `yaml:"input" template:"decision"`                                           // What the action gets; default: the payload.
	Overlap        string            `yaml:"overlap" enum:"queue|skip|allow" later:"latest|cancel_previous|join"` // What to do with an event while a turn of the thread runs. Default: queue with a thread, skip for schedules, else allow.
	Concurrency    []Concurrency     `yaml:"concurrency" size:"1"`                                                // Limits on turns that run at once.
	Retry          Retry             `yaml:"retry"`                                                               // Repeats of a failing action; default defaults.triggers.retry.
	Timeout        Duration          `yaml:"timeout" min:"1ms"`                                                   // How long one attempt may take; default defaults.triggers.timeout, else 1h.
	OnCrash        string            `yaml:"on_crash" default:"retry" enum:"retry|park" later:"resume"`           // What to do with an action that a crash cut short.
	WhilePaused    string            `yaml:"while_paused" default:"hold" enum:"hold|skip"`                        // What to do with events while the trigger is paused.
	PauseOnFailure int               `yaml:"pause_on_failure" min:"1" max:"1000"`                                 // Pause the trigger when so many turns in a row have ended dead. Default: never.
	Enabled        *bool             `yaml:"enabled" default:"true"`                                              // False: the trigger matches nothing.
	RenamedFrom    string            `yaml:"renamed_from" format:"name"`                                          // The name that this trigger had before: its position and duplicates stay.
	RunsOn         map[string]string `yaml:"runs_on" format:"labels"`                                             // Which daemons may run its turns: those whose server.labels have all of these. Default: what its connections say; {} = any.
	Labels         map[string]string `yaml:"labels"`                                                              // Free labels.
	Run            Run               `yaml:"run" required:"true"`                                                 // The action.
}

// Overlap rules of this version.
const (
	OverlapQueue = "queue"
	OverlapSkip  = "skip"
	OverlapAllow = "allow"
)

// Thread is order and memory: turns with the same key run one at a time. A plain string in the file is the key.
type Thread struct {
	_     struct{} `short:"key"`
	Key   string   `yaml:"key" expr:"key"`                        // CEL; "none" = no thread.
	Scope string   `yaml:"scope" default:"trigger" format:"name"` // "trigger", or a name that several triggers share.
}

// Concurrency is one limit on turns that run at once.
type Concurrency struct {
	Limit int `yaml:"limit" required:"true" min:"1" max:"10000"` // Turns of the trigger that run at once.
}

// Retry bounds repeats of a failing action.
type Retry struct {
	Attempts   int      `yaml:"attempts" default:"5" min:"1" max:"1000"` // The first try counts.
	Backoff    Backoff  `yaml:"backoff"`                                 // The wait between attempts.
	MaxElapsed Duration `yaml:"max_elapsed" default:"24h" min:"1s"`      // From the first try.
}

// Backoff is exponential with full jitter.
type Backoff struct {
	Initial Duration `yaml:"initial" default:"2s" min:"1ms"` // The first wait's upper bound.
	Max     Duration `yaml:"max" default:"5m" min:"1ms"`     // The upper bound of all waits.
}

// Run is the action. Exactly one is set.
type Run struct {
	Exec    *Exec    `yaml:"exec" kind:"action"`    // Runs a command without a shell.
	HTTP    *HTTP    `yaml:"http" kind:"action"`    // Calls a URL.
	Publish *Publish `yaml:"publish" kind:"action"` // Sends one NATS message.
}

// Exec runs a command without a shell. Every text is a template.
type Exec struct {
	Command   []string          `yaml:"command" required:"true" size:"1" template:"action"` // The program and its arguments. A program with a slash is relative to this file.
	Dir       string            `yaml:"dir" template:"action" path:"file"`                  // Working directory; default the daemon's.
	Env       map[string]string `yaml:"env" template:"action"`                              // Variables besides PATH, HOME, LANG, TZ and TRIGGERD_*.
	Stdin     *string           `yaml:"stdin" template:"action"`                            // Default: the event as JSON.
	ExitCodes ExitCodes         `yaml:"exit_codes"`                                         // What exit codes other than 0 mean.
	KillAfter Duration          `yaml:"kill_after" default:"10s" max:"1h"`                  // Time between SIGTERM and SIGKILL.
	MaxOutput Size              `yaml:"max_output" default:"1MiB" min:"1" max:"64MiB"`      // Kept of stdout and stderr together.
}

// ExitCodes say what an exit code other than 0 means; codes in neither list are retried.
type ExitCodes struct {
	Retry []int `yaml:"retry" min:"1" max:"255"` // Try again.
	Dead  []int `yaml:"dead" min:"1" max:"255"`  // Never again.
}

// HTTP calls a URL. Every text but the method is a template.
type HTTP struct {
	Method       string            `yaml:"method" default:"POST"`                           // An HTTP method.
	URL          string            `yaml:"url" required:"true" template:"action"`           // http:// or https://.
	Headers      map[string]string `yaml:"headers" template:"action"`                       // Request headers.
	Body         *string           `yaml:"body" template:"action"`                          // Default: the input; none for GET and HEAD.
	RetryStatus  []int             `yaml:"retry_status" min:"100" max:"599"`                // Statuses to retry besides 408, 425, 429 and 5xx.
	AllowPrivate bool              `yaml:"allow_private"`                                   // Allows private address ranges although the host comes from a template.
	MaxResponse  Size              `yaml:"max_response" default:"1MiB" min:"1" max:"64MiB"` // Kept of the response.
}

// Publish sends one NATS message. Every text is a template.
type Publish struct {
	Subject   string            `yaml:"subject" required:"true" template:"action"` // Where to.
	Data      *string           `yaml:"data" template:"action"`                    // Default: the input.
	Headers   map[string]string `yaml:"headers" template:"action"`                 // Message headers.
	JetStream bool              `yaml:"jetstream"`                                 // Waits for a stream's acknowledgement.
}

// Duration is a time span; files may use d and w besides Go's units.
type Duration time.Duration

// Size is a number of bytes; files may use KiB, MiB and GiB.
type Size int64

// StringList is a list; files may give a single string.
type StringList []string
