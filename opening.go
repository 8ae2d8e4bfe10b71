package triggerd

// Opening asks for one turn: what a decision that matched hands to whoever opens turns.
type Opening struct {
	Key      TurnKey
	Event    *Event // whole; not changed afterwards by anybody
	Blob     string // names the blob that holds the payload, when it does not fit in a message
	Thread   string // the thread's key as people know it; "" = none
	Lane     string // turns of one lane run one at a time, in order; "" = no lane
	Input    any    // rendered input, when HasInput
	HasInput bool
	Version  string // the configuration that decided
	Queues   bool   // it waits for its lane, also where the trigger's overlap would skip it
	ReplayOf string // key of the turn that this one repeats; "" = the event itself opened it
}
