package bus

import "strings"

// Names builds the stream names and subjects of one installation. All of them start with its prefix,
// so that several installations can share a NATS system.
type Names struct{ Prefix string }

// Events is the name of the stream of events, cursors and fences.
func (n Names) Events() string { return n.Prefix + "_EVENTS" }

// Turns is the name of the stream that holds a subject per turn.
func (n Names) Turns() string { return n.Prefix + "_TURNS" }

// Threads is the name of the stream of transcripts.
func (n Names) Threads() string { return n.Prefix + "_THREADS" }

// Control is the name of the key-value bucket for leases, pauses, versions and positions.
func (n Names) Control() string { return n.Prefix + "_CONTROL" }

// Blobs is the name of the object bucket for whatever does not fit in a message.
func (n Names) Blobs() string { return n.Prefix + "_BLOBS" }

// Push is the name of a push connection's own stream.
func (n Names) Push(connection string) string { return n.Prefix + "_PUSH_" + connection }

// Event is the subject that only the event with this id may take.
func (n Names) Event(connection, subscription, idHash string) string {
	return strings.Join([]string{n.Prefix, "event", connection, subscription, idHash}, ".")
}

// EventsOf matches all events of a connection.
func (n Names) EventsOf(connection string) string { return n.Prefix + ".event." + connection + ".>" }

// EventsOfSubscription matches all events of one subscription.
func (n Names) EventsOfSubscription(connection, subscription string) string {
	return n.Prefix + ".event." + connection + "." + subscription + ".*"
}

// AllEvents matches every event, and neither cursors nor fences.
func (n Names) AllEvents() string { return n.Prefix + ".event.>" }

// Cursor is the subject of a position that moved without an event.
func (n Names) Cursor(connection, subscription string) string {
	return n.Prefix + ".cursor." + connection + "." + subscription
}

// Owner is the subject of a connection's fence.
func (n Names) Owner(connection string) string { return n.Prefix + ".owner." + connection }

// Daemon is where a daemon takes requests of the other daemons.
func (n Names) Daemon(id string) string { return n.Prefix + ".daemon." + id }

// Turn is a turn's own subject.
func (n Names) Turn(pool, partition, hash string) string {
	return strings.Join([]string{n.Prefix, "turn", pool, partition, hash}, ".")
}

// TurnAnywhere matches a turn's subject whatever its pool and partition, so that a key cannot be opened twice.
func (n Names) TurnAnywhere(hash string) string { return n.Prefix + ".turn.*.*." + hash }

// TurnsOf matches the turns of a partition, given as <pool>.<partition>.
func (n Names) TurnsOf(partition string) string { return n.Prefix + ".turn." + partition + ".*" }

// AllTurns matches every turn.
func (n Names) AllTurns() string { return n.Prefix + ".turn.>" }

// PushSubjects matches what an app may publish for its connection.
func (n Names) PushSubjects(connection string) string { return n.Prefix + ".push." + connection + ".>" }

// SubmitSubjects matches the requests that are answered only after the event is durable.
func (n Names) SubmitSubjects(connection string) string {
	return n.Prefix + ".submit." + connection + ".>"
}

// streamOf names the stream that takes a subject; "" for subjects that are none of ours.
func (n Names) streamOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, n.Prefix+".")
	if !ok {
		return ""
	}
	switch kind, _, _ := strings.Cut(rest, "."); kind {
	case "event", "cursor", "owner":
		return n.Events()
	case "turn":
		return n.Turns()
	case "thread":
		return n.Threads()
	}
	return ""
}

// probe is a subject of the stream that nothing is ever stored on: no name starts with '_'.
func (n Names) probe(stream string) string {
	switch stream {
	case n.Events():
		return n.Owner("_probe")
	case n.Turns():
		return n.Turn("_probe", "0", "_probe")
	}
	return n.Prefix + ".thread._probe"
}
