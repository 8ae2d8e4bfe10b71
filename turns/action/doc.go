// Package action holds what a turn can do: run a command (exec), call a URL (http), send a NATS message (publish).
//
// Each New function compiles the templates of its options once and refuses options that can never work; what it returns
// is safe for concurrent use. An attempt ends in one of these outcomes:
//
//	                 exec                        http                              publish
//	done             exit code 0                 2xx                               flushed, or acknowledged by a stream
//	retry            any other exit code         408, 425, 429, 5xx, retry_status  no answer, no stream, refused for now
//	                 could not start for now     no connection, broken TLS
//	dead             exit_codes.dead             any other status                  over the size limit
//	                 not found, not executable   redirect to another origin        not a subject that may be published to
//
// In all of them a time-out, a cancel or a shutdown asks for a retry with that as the cause; a secret that cannot be read
// does too, since its file may come back. A template that fails, a value that does not fit where it goes and a panic are dead:
// the same event would fail in the same way. With http a 2xx counts as done even if the rest of the response never arrives,
// because the request has been accepted by then.
//
// Every action hands on the turn's idempotency key, the same for each attempt, and the number of turns that led to it plus one,
// so that an event that it causes is counted (promise P28).
//
// Causes and outputs go through the Redact hook of the options; a cause never holds a secret that this attempt used.
package action
