package consoletest

import (
	"encoding/json"
	"time"

	"github.com/triggerd/triggerd"
	"github.com/triggerd/triggerd/console"
)

// Sample is a Fake with a bit of everything: references full of separators, awkward text, every payload form, every optional field.
func Sample() *Fake {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	one := 1
	text, cursor := "plain <text> & \x1b[31mmore", "c-17"
	f := &Fake{Now: now, Explanations: map[string]console.Explanation{}}
	f.EventList = []console.EventDetail{
		{EventInfo: eventInfo(13, "hooks", "a/b#1:c?d&e=é", "webhook.received", now), ContentType: "text/plain", Text: &text, Cursor: &cursor,
			Headers: map[string]string{"x-request-id": "7"}, Hops: 2},
		{EventInfo: eventInfo(12, "orders", "42", "order.created", now.Add(-time.Minute)), ContentType: "application/json",
			Payload: json.RawMessage(`{"n":9007199254740993,"html":"<b>&"}`)},
		{EventInfo: eventInfo(11, "orders", "41", "order.deleted", now.Add(-time.Hour)), Base64: []byte{0, 255, 1}},
	}
	ship := console.TurnDetail{TurnInfo: turnInfo("orders", "ship", "42", "dead", now), Event: f.EventList[1]}
	ship.Thread, ship.Attempt, ship.Finished, ship.Error = "customer:7", 4, at(90*time.Second), "exit code 1"
	ship.Outcome = &console.Outcome{ExitCode: &one, OutputBytes: 70000, OutputCut: true}
	ship.Input = map[string]any{"n": json.Number("9007199254740993")}
	ship.Output = "line one\nline\ttwo \x1b[2J\n"
	ship.History = []console.TurnEntry{
		{Seq: 1, Time: now, State: "queued"},
		{Seq: 2, Time: now.Add(time.Second), State: "running", Attempt: 1, Daemon: "host-1", Epoch: 3},
		{Seq: 3, Time: now.Add(90 * time.Second), State: "dead", Attempt: 4, Cause: "exit code 1"},
	}
	hello := console.TurnDetail{TurnInfo: turnInfo("hooks", "hello", "a/b#1:c?d&e=é", "queued", now.Add(-time.Second)), Event: f.EventList[0]}
	hello.Attempt, hello.NotBefore = 1, at(time.Minute)
	hello.History = []console.TurnEntry{{Seq: 4, Time: now, State: "queued", Attempt: 1, Cause: "status 503"}}
	f.TurnList = []console.TurnDetail{ship, hello}
	for i := range f.EventList {
		f.EventList[i].Turns = []console.TurnInfo{}
	}
	f.EventList[1].Turns = []console.TurnInfo{ship.TurnInfo}
	for i := range f.TurnList {
		f.TurnList[i].Event.Turns = []console.TurnInfo{}
	}
	f.TriggerList = []console.TriggerInfo{
		{Name: "ship", Connections: []string{"orders"}, Events: []string{"order.*"}, Action: "exec", Overlap: "queue", Enabled: true, Queued: 2, Running: 1, Dead: 1},
		{Name: "hello", Connections: []string{"hooks", "orders"}, Events: []string{}, Action: "http", Overlap: "allow", Enabled: true,
			Paused: true, PausedUntil: at(time.Hour), PauseNote: "maintenance", Held: 3},
		{Name: "old", Connections: []string{"orders"}, Events: []string{}, Action: "publish", Overlap: "skip"},
	}
	f.Explanations["12"] = console.Explanation{Event: f.EventList[1].EventInfo, Version: "v7", Verdicts: []console.Verdict{
		{Trigger: "ship", Verdict: "matched", Reason: "type order.created fits order.*", Turn: &f.TurnList[0].TurnInfo},
		{Trigger: "hello", Verdict: "filtered", Reason: "event.payload.n > 3 is false"},
	}}
	f.DaemonList = []console.DaemonInfo{
		{ID: "01M8Q38FW5WDKYN7BEE765DJ3T", Host: "a", PID: 7, Version: "v1.2.3", Started: *at(0), Owner: true, Age: 0.4},
		{ID: "01M8Q38J1BDWP5D74DAC7J8Y7E", Host: "b", PID: 9, Version: "v1.2.3", Started: *at(time.Hour), Self: true},
	}
	f.AppList = []console.AppInfo{{Connection: "orders", User: "app-orders", File: "/data/apps/orders.json", URL: "nats://127.0.0.1:4222",
		Subjects: "triggerd.push.orders.>", Enabled: true}}
	f.Readiness = console.Readiness{Ready: true, Reasons: []string{}, Version: "v1.2.3", Sources: []console.SourceStatus{
		{Connection: "orders", Kind: "push", State: "running", LastEvent: at(0), Events: 2, Pending: 1},
		{Connection: "hooks", Kind: "webhook", State: "backoff", Error: "address in use"},
	}}
	f.ReloadResult = console.ReloadResult{Changed: true, Connections: []string{"+new", "~orders"}, Triggers: []string{"-old"}, Version: "v8"}
	return f
}

func eventInfo(seq uint64, connection, id, typ string, at time.Time) console.EventInfo {
	return console.EventInfo{Seq: seq, Connection: connection, ID: id, Type: typ, Time: at, Received: at.Add(5 * time.Millisecond), Bytes: 36}
}

func turnInfo(connection, trigger, id, state string, opened time.Time) console.TurnInfo {
	key := triggerd.TurnKey{Connection: connection, Trigger: trigger, EventID: id}
	return console.TurnInfo{Hash: key.Hash(), Key: key.String(), Connection: connection, Trigger: trigger, EventID: id, State: state, Opened: opened}
}
