package daemon

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// resource is something that one daemon owns at a time.
type resource struct {
	key  string // of its lease, without prefix
	pool string // which daemons may own it
}

// assign says who is to own what. It is a pure function of what every daemon knows, so they agree without asking each other: who owns something keeps
// it, unless it may not any more, or another daemon has at least two less of the same kind; what is free goes to who has least.
// owners are the present ones, may says whether a daemon belongs to a pool. What nobody may own is left out.
func assign(group []resource, owners map[string]string, daemons []string, may func(daemon, pool string) bool) map[string]string {
	out := map[string]string{}
	byPool := map[string][]resource{}
	for _, r := range group {
		byPool[r.pool] = append(byPool[r.pool], r)
	}
	for pool, rs := range byPool {
		var able []string
		for _, d := range daemons {
			if may(d, pool) {
				able = append(able, d)
			}
		}
		if len(able) > 0 {
			assignPool(out, rs, owners, able)
		}
	}
	return out
}

// assignPool is assign for the resources that the same daemons may own.
func assignPool(out map[string]string, rs []resource, owners map[string]string, able []string) {
	slices.SortFunc(rs, func(a, b resource) int { return cmp.Compare(a.key, b.key) })
	// Ties go to another daemon in each group, so that the first one does not get what is left over everywhere.
	order := slices.Clone(able)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(score(rs[0].key, a), score(rs[0].key, b)), cmp.Compare(a, b))
	})
	has := map[string][]string{}
	for _, d := range order {
		has[d] = nil
	}
	var free []string
	for _, r := range rs {
		if o := owners[r.key]; slices.Contains(able, o) {
			has[o] = append(has[o], r.key)
		} else {
			free = append(free, r.key)
		}
	}
	least := func() string {
		return slices.MinFunc(order, func(a, b string) int { return cmp.Compare(len(has[a]), len(has[b])) })
	}
	most := func() string {
		return slices.MaxFunc(order, func(a, b string) int { return cmp.Compare(len(has[a]), len(has[b])) })
	}
	for _, key := range free {
		d := least()
		has[d] = append(has[d], key)
	}
	for from, to := most(), least(); len(has[from])-len(has[to]) >= 2; from, to = most(), least() {
		last := len(has[from]) - 1
		has[to] = append(has[to], has[from][last])
		has[from] = has[from][:last]
	}
	for d, keys := range has {
		for _, key := range keys {
			out[key] = d
		}
	}
}

func score(a, b string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(a + "\x00" + b))
	return h.Sum32()
}
