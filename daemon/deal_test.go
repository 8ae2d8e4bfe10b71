package daemon

import (
	"testing"

	"github.com/rs/zerolog"
)

// A lease whose release failed belongs to a daemon that does nothing with it. It is freed when it is another's to be, and kept when it is held, or to be
// taken again.
func TestStrayLeasesAreFreed(t *testing.T) {
	b := external(t, 1)[0]
	sh := &share{d: &Daemon{id: "d1"}, bus: b, log: zerolog.Nop(), table: newTable(b, zerolog.Nop()), held: map[string]*holding{}}
	me, other := member{Daemon: "d1", Term: 3}, member{Daemon: "d2", Term: 1}
	sh.table.members = map[string]sighting{"d1": {member: me}, "d2": {member: other}}
	for key, l := range map[string]lease{
		"turns.default.1": {Daemon: "d1", Term: 3, Epoch: 7}, // stray
		"turns.default.2": {Daemon: "d1", Term: 3, Epoch: 7}, // held
		"turns.default.3": {Daemon: "d1", Term: 3, Epoch: 7}, // to be taken again
		"turns.default.4": {Daemon: "d1", Term: 2, Epoch: 7}, // free by an earlier term's end
		"turns.default.5": {Daemon: "d2", Term: 1, Epoch: 7}, // another's
		"connection.gone": {Daemon: "d1", Term: 3, Epoch: 7}, // configured no more
	} {
		if _, err := sh.write(t.Context(), key, 0, l); err != nil {
			t.Fatal(err)
		}
	}
	sh.held["turns.default.2"] = &holding{}
	sh.freeStray(t.Context(), deal{want: map[string]string{
		"turns.default.1": "d2", "turns.default.2": "d2", "turns.default.3": "d1", "turns.default.4": "d2", "turns.default.5": "d1",
	}})
	for _, key := range sh.table.keys() {
		l := sh.table.lease(key)
		if free := key == "turns.default.1" || key == "connection.gone"; l.Free != free || l.Epoch != 7 {
			t.Errorf("%s: %+v", key, l)
		}
	}
}
