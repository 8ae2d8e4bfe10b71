package configs

import (
	"slices"
	"strings"
)

// nearest is the candidate that word was most likely meant to be, or "".
func nearest(word string, candidates []string) string {
	best, bestDist := "", len(word)/3+1
	sorted := slices.Sorted(slices.Values(candidates))
	for _, c := range sorted {
		if c == word {
			continue
		}
		d := distance(normal(word), normal(c))
		if d < bestDist || d == bestDist && best == "" && d <= 2 && len(word) > 2 {
			best, bestDist = c, d
		}
	}
	return best
}

// didYouMean is the hint for an unknown word: the nearest candidate, else the candidates where they are few.
func didYouMean(word string, candidates []string) string {
	if n := nearest(word, candidates); n != "" {
		return "did you mean " + n + "?"
	}
	if len(candidates) == 0 || len(candidates) > 12 {
		return ""
	}
	return "known: " + strings.Join(slices.Sorted(slices.Values(candidates)), ", ")
}

// normal makes onCrash, on-crash and on_crash alike.
func normal(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(cut(s, 64)))
}

// distance counts insertions, deletions, changes and swaps of neighbours (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
