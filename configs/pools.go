package configs

import (
	"regexp"
	"strings"
)

// DefaultPool is the pool of everything that any daemon may run.
const DefaultPool = "default"

// maxLabels bounds a set of labels, and with it the length of a pool's name.
const maxLabels = 8

// labelPattern is what names and values of labels look like. A pool's name is made of them, and it is one token of a NATS subject and a part of
// a key: no dot, no wildcard, no space, and neither of the separators.
const labelPattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`

var labelText = regexp.MustCompile(labelPattern)

// Pool names the daemons that have all of these labels: [DefaultPool] without any, else name=value pairs in the order of their names, joined by "/".
// The same labels always have the same name, and other labels another. Checked labels make it one token of a NATS subject.
func Pool(runsOn map[string]string) string {
	if len(runsOn) == 0 {
		return DefaultPool
	}
	pairs := make([]string, 0, len(runsOn))
	for _, name := range sortedNames(runsOn) {
		pairs = append(pairs, name+"="+runsOn[name])
	}
	return strings.Join(pairs, "/")
}

// PoolLabels is the inverse of [Pool]: nil for [DefaultPool]. It reports false for what Pool does not make of checked labels.
func PoolLabels(pool string) (map[string]string, bool) {
	if pool == DefaultPool {
		return nil, true
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(pool, "/") {
		name, value, _ := strings.Cut(pair, "=")
		if !labelText.MatchString(name) || !labelText.MatchString(value) || len(labels) == maxLabels {
			return nil, false
		}
		labels[name] = value
	}
	return labels, Pool(labels) == pool // in order, and no name twice
}

// InPool reports whether a daemon with these labels belongs to the pool. Everything that [PoolLabels] refuses has no daemons.
func InPool(labels map[string]string, pool string) bool {
	want, ok := PoolLabels(pool)
	for name, value := range want {
		ok = ok && labels[name] == value
	}
	return ok
}

// TriggerPool is the pool that runs the turns of a trigger, by its name; [DefaultPool] for a trigger that is not there.
func (c *Config) TriggerPool(name string) string { return Pool(c.Triggers[name].RunsOn) }

// ConnectionPool is the pool that runs a connection's source and inbox, by its name; [DefaultPool] for a built-in one or one that is not there.
func (c *Config) ConnectionPool(name string) string { return Pool(c.Connections[name].RunsOn) }
