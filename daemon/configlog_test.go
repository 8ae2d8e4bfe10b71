package daemon

import (
	"testing"
)

// The order in which configurations are made known says which is newer, and a generation overrules it.
func TestMakeKnown(t *testing.T) {
	b := external(t, 1)[0]
	for i, c := range []struct {
		version    string
		generation int
		chosen     bool
		newest     bool
		why        string
	}{
		{"a", 0, false, true, "the first one"},
		{"a", 0, false, true, "the same again"},
		{"b", 0, false, true, "one that was never there"},
		{"a", 0, false, false, "in the middle of a rolling restart"},
		{"a", 0, true, true, "chosen: a roll back"},
		{"b", 0, false, false, "is older now"},
		{"b", 1, false, true, "a higher generation"},
		{"a", 0, true, false, "a lower generation, even chosen"},
		{"a", 2, false, true, "an old one as a new generation"},
		{"b", 1, true, false, "a lower generation again"},
	} {
		newest, err := makeKnown(t.Context(), b, configRecord{Version: c.version, Generation: c.generation}, c.chosen)
		if err != nil || newest != c.newest {
			t.Errorf("%d, %s: %v, %v", i, c.why, newest, err)
		}
	}
}
