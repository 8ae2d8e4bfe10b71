package bus

import "slices"

// Permissions are what a user on an external NATS needs to run a daemon, and nothing more.
type Permissions struct {
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
	// AllowResponses: it may answer a request wherever the asker wants the answer, because daemons ask each other, and apps submit events that way.
	AllowResponses bool `json:"allow_responses,omitempty"`
}

// inboxPrefix begins the subjects that answers come back to. They carry payloads: nobody else should be allowed to subscribe there.
const inboxPrefix = "_TRIGGERD"

// Permissions lists them for an installation with these push connections, whose publish actions may send to the subjects in actions.
func (n Names) Permissions(domain string, push, actions []string) Permissions {
	api := "$JS.API."
	if domain != "" {
		api = "$JS." + domain + ".API."
	}
	streams := []string{n.Events(), n.Turns(), n.Threads(), "KV_" + n.Control(), "OBJ_" + n.Blobs()}
	p := Permissions{
		Publish: []string{
			n.AllEvents(), n.Cursor("*", "*"), n.Owner("*"), n.AllTurns(), n.Prefix + ".thread.*",
			n.Daemon("*"), "$KV." + n.Control() + ".>", "$O." + n.Blobs() + ".>", api + "INFO",
		},
		Subscribe:      []string{inboxPrefix + ".>", n.Daemon("*")},
		AllowResponses: true, // daemons answer each other
	}
	for _, c := range push {
		streams = append(streams, n.Push(c))
		p.Subscribe = append(p.Subscribe, n.SubmitSubjects(c))
	}
	for _, s := range streams {
		p.Publish = append(p.Publish,
			api+"STREAM.*."+s,                        // create, update, info, purge
			api+"STREAM.MSG.*."+s,                    // read and delete one message
			api+"DIRECT.GET."+s,                      // read
			api+"DIRECT.GET."+s+".>",                 //
			api+"CONSUMER.*."+s,                      // list
			api+"CONSUMER.*."+s+".>",                 // create, info, delete
			api+"CONSUMER.MSG.NEXT."+s+".>",          // pull
			"$JS.ACK."+s+".>", "$JS.ACK.*.*."+s+".>", // both forms of acknowledgements
			"$JS.FC."+s+".>", // flow control, where blobs are read
		)
	}
	p.Publish = append(p.Publish, actions...)
	slices.Sort(p.Publish)
	slices.Sort(p.Subscribe)
	p.Publish, p.Subscribe = slices.Compact(p.Publish), slices.Compact(p.Subscribe)
	return p
}
