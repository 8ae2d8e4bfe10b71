package sources

import (
	"cmp"
	"slices"
	"strings"
)

// MaxHeaders bounds the headers that an event keeps, names and values together, in bytes. A stored message's headers have room for
// 64 KiB, and ours and the cursor's are among them.
const MaxHeaders = 16 << 10

// KeepHeaders returns the headers that an event keeps: names in lower case, several values joined by ", ", invalid UTF-8 replaced,
// without those that drop (asked with the lower-case name) refuses. Over [MaxHeaders] the largest are left out.
func KeepHeaders(in map[string][]string, drop func(name string) bool) map[string]string {
	joined := make(map[string][]string, len(in))
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	slices.Sort(names) // names that differ in case only meet in a fixed order
	for _, name := range names {
		if lower := strings.ToLower(name); !drop(lower) {
			joined[lower] = append(joined[lower], in[name]...)
		}
	}
	kept := make(map[string]string, len(joined))
	names, total := names[:0], 0
	for name, values := range joined {
		kept[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		total += len(name) + len(kept[name])
		names = append(names, name)
	}
	size := func(name string) int { return len(name) + len(kept[name]) }
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(size(b)-size(a), strings.Compare(a, b)) })
	for i := 0; total > MaxHeaders; i++ {
		total -= size(names[i])
		delete(kept, names[i])
	}
	return kept
}
