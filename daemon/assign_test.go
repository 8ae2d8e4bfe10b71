package daemon

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// load counts what each daemon is to own.
func load(want map[string]string, daemons []string) map[string]int {
	n := map[string]int{}
	for _, d := range daemons {
		n[d] = 0
	}
	for _, d := range want {
		n[d]++
	}
	return n
}

func parts(n int, pool string) (out []resource) {
	for i := range n {
		out = append(out, resource{key: fmt.Sprintf("turns.%s.%02d", pool, i), pool: pool})
	}
	return out
}

func anyPool(string, string) bool { return true }

// Whatever the owners are now: everything gets one owner who may have it, the loads differ by one at most, nobody loses more than balance needs,
// and who is asked again says the same and then moves nothing.
func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		daemons := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "daemons")]
		rs := parts(rapid.IntRange(1, 40).Draw(t, "resources"), "default")
		owners := map[string]string{}
		for _, r := range rs {
			if o := rapid.SampledFrom([]string{"", "a", "b", "c", "gone"}).Draw(t, "owner"); o != "" {
				owners[r.key] = o
			}
		}
		want := assign(rs, owners, daemons, anyPool)
		if len(want) != len(rs) {
			t.Fatalf("%d of %d have an owner", len(want), len(rs))
		}
		n := load(want, daemons)
		least, most := slices.Min(slices.Collect(maps.Values(n))), slices.Max(slices.Collect(maps.Values(n)))
		if len(n) != len(daemons) || most-least > 1 {
			t.Fatalf("loads %v", n)
		}
		moved := map[string]int{}
		had := load(owners, daemons)
		for key, o := range owners {
			if slices.Contains(daemons, o) && want[key] != o {
				moved[o]++
			}
		}
		for d, m := range moved {
			if had[d]-m < least {
				t.Fatalf("%s had %d and loses %d, although everybody has %d at least", d, had[d], m, least)
			}
		}
		slices.Reverse(rs)
		if again := assign(rs, owners, daemons, anyPool); !maps.Equal(want, again) {
			t.Fatal("another order gives another answer")
		}
		if next := assign(rs, want, daemons, anyPool); !maps.Equal(want, next) {
			t.Fatal("it moves what is balanced")
		}
	})
}

// Each pool is dealt among the daemons that may have it, and what nobody may have is left.
func TestAssignPools(t *testing.T) {
	rs := slices.Concat(parts(4, "default"), parts(3, "gpu=yes"), parts(2, "moon=1"))
	may := func(daemon, pool string) bool { return pool == "default" || pool == "gpu=yes" && daemon == "b" }
	want := assign(rs, map[string]string{"turns.gpu=yes.00": "a"}, []string{"a", "b"}, may)
	if n := load(want, nil); n["a"] != 2 || n["b"] != 5 || len(want) != 7 {
		t.Errorf("%v", want)
	}
}

// Few things of many kinds do not all go to the same daemon.
func TestAssignSpreadsKinds(t *testing.T) {
	n := map[string]int{}
	for i := range 30 {
		for _, d := range assign([]resource{{key: fmt.Sprintf("kind%d", i), pool: "p"}}, nil, []string{"a", "b", "c"}, anyPool) {
			n[d]++
		}
	}
	if len(n) != 3 {
		t.Errorf("%v", n)
	}
}
