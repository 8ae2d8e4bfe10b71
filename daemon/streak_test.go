package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/triggerd/triggerd/turns"
)

// What counts is where ends stand in the ledger, not when and how often they are told.
func TestStreak(t *testing.T) {
	ends := []turns.Info{
		{Since: 1, State: turns.Dead}, {Since: 2, State: turns.Dead}, {Since: 3, State: turns.Done}, {Since: 5, State: turns.Dead}, {Since: 8, State: turns.Dead},
	}
	for range 200 {
		told := slices.Concat(ends, ends)
		rand.Shuffle(len(told), func(i, j int) { told[i], told[j] = told[j], told[i] })
		var stored streak
		for _, i := range append(told, ends...) { // in the end in order, as a start tells them
			s := streak{After: stored.After, Failed: slices.Clone(stored.Failed)}
			if s.add(i) {
				stored = s
			}
		}
		slices.Sort(stored.Failed)
		if !slices.Equal(stored.Failed, []uint64{5, 8}) {
			t.Fatalf("told as %v: %+v", told, stored)
		}
	}
	s := streak{}
	if s.add(turns.Info{Since: 4, State: turns.Done}) {
		t.Error("a success without failures before it is written")
	}
}
