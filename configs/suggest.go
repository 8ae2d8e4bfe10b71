package configs

import (
	"slices"
	"strings"

	"github.com/triggerd/triggerd/expr"
)

// nearest is the candidate that word was most likely meant to be, or "".
func nearest(word string, candidates []string) string {
	best, bestDist := "", len(word)/3+1
	sorted := slices.Sorted(slices.Values(candidates))
	for _, c := range sorted {
		if c == word {
			continue
		}
		d := expr.Distance(normal(word), normal(c))
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
