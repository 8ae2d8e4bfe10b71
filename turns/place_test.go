package turns

import (
	"cmp"
	"slices"
	"testing"

	"github.com/triggerd/triggerd/bus"
)

// A key is opened once, also when its trigger's `thread` has come or gone since, which moves it to another partition. Restarts forget nothing of that.
func TestNoSecondTurnInAnotherPartition(t *testing.T) {
	for name, c := range map[string]struct{ first, then string }{
		"thread added":   {"", "L"},
		"thread removed": {"L", ""},
		"thread changed": {"L", "M"},
	} {
		t.Run(name, func(t *testing.T) {
			if h := hashOf("a", "1"); partition(cmp.Or(c.first, h)) == partition(cmp.Or(c.then, h)) {
				t.Fatal("both are in one partition: choose another lane")
			}
			act := &auto{}
			r := setup(t, trigger("a", act))
			r.openTurns(ask("a", "1", c.first))
			r.want("1", Done)
			r.restart()
			r.openTurns(ask("a", "1", c.then), ask("a", "2", c.then))
			r.until("the other turn is done", func() bool { return slices.Contains(act.ran(), "2") })
			if ran := act.ran(); !slices.Equal(ran, []string{"1", "2"}) {
				t.Errorf("ran %v", ran)
			}
		})
	}
}

// The server is asked for all partitions only where that is needed.
func TestOpenLooksWhereTheKeyCanBe(t *testing.T) {
	r := setup(t, trigger("a", &auto{}), trigger("b", &auto{}))
	r.pause("a", Pause{})
	r.pause("b", Pause{})
	everywhere := func(trigger, id string) bool {
		m, err := r.bus.Last(t.Context(), r.bus.Turns, r.bus.Names.TurnAnywhere(hashOf(trigger, id)))
		if err != nil || m == nil {
			t.Fatalf("read turn %s: %v, %v", id, m, err)
		}
		_, ok := m.Header[bus.HeaderExpectSubject]
		return ok
	}
	r.openTurns(ask("a", "1", ""))
	if everywhere("a", "1") {
		t.Error("a trigger that never had threads")
	}
	r.openTurns(ask("a", "2", "L"), ask("a", "3", ""))
	if !everywhere("a", "2") || !everywhere("a", "3") {
		t.Error("a trigger with threads")
	}
	r.restart()
	r.openTurns(ask("a", "4", ""), ask("b", "5", ""))
	if !everywhere("a", "4") {
		t.Error("a trigger that had threads before the restart")
	}
	if everywhere("b", "5") {
		t.Error("another trigger")
	}
}
