package configs

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var durationPart = regexp.MustCompile(`^(\d+(?:\.\d+)?|\.\d+)([a-z\x{b5}\x{3bc}]+)`)

// ParseDuration reads a time span: numbers with units ns, us, ms, s, m, h, d (24 h) and w (7 d), as in "1h30m" or "7d". It is never negative.
func ParseDuration(s string) (Duration, error) {
	rest := strings.TrimSpace(s)
	switch {
	case rest == "":
		return 0, errors.New("duration is empty")
	case rest == "0":
		return 0, nil
	case strings.HasPrefix(rest, "-"):
		return 0, errors.New("duration is negative")
	}
	if _, err := strconv.ParseFloat(rest, 64); err == nil {
		return 0, fmt.Errorf("duration has no unit, for example %ss", cut(rest, 20))
	}
	var total time.Duration
	for rest != "" {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, errors.New("not a duration, for example 30s, 1h30m, 7d")
		}
		part, err := onePart(m[1], m[2])
		if err != nil {
			return 0, err
		}
		if total > math.MaxInt64-part {
			return 0, errors.New("duration is too long: the limit is 292 years")
		}
		total += part
		rest = rest[len(m[0]):]
	}
	return Duration(total), nil
}

func onePart(number, unit string) (time.Duration, error) {
	factor := time.Duration(1)
	switch unit {
	case "d":
		unit, factor = "h", 24
	case "w":
		unit, factor = "h", 7*24
	case "ns", "us", "µs", "μs", "ms", "s", "m", "h":
	default:
		return 0, fmt.Errorf("unknown unit %q in a duration: use ns, us, ms, s, m, h, d or w", cut(unit, 20))
	}
	d, err := time.ParseDuration(number + unit)
	if err != nil || d > math.MaxInt64/factor {
		return 0, errors.New("duration is too long: the limit is 292 years")
	}
	return d * factor, nil
}

// String is the shortest form that [ParseDuration] reads back: whole days as 7d, the rest as Go prints it, without zero parts.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var sizePattern = regexp.MustCompile(`^(\d+)(?:\.(\d{1,9}))?\s*([A-Za-z]*)$`)

var sizeUnits = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// ParseSize reads a number of bytes: plain, or with B, KiB, MiB, GiB or TiB. It is never negative.
func ParseSize(s string) (Size, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "-") {
		return 0, errors.New("size is negative")
	}
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New("not a size, for example 1048576, 64KiB, 1MiB")
	}
	unit, ok := sizeUnits[m[3]]
	if !ok {
		return 0, unknownUnit(m[3])
	}
	whole, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || whole > math.MaxInt64/unit {
		return 0, errors.New("size is too large")
	}
	bytes := whole * unit
	if m[2] != "" {
		frac, _ := strconv.ParseFloat("0."+m[2], 64)
		part := frac * float64(unit)
		if part != math.Trunc(part) {
			return 0, errors.New("size is not a whole number of bytes")
		}
		if bytes > math.MaxInt64-int64(part) {
			return 0, errors.New("size is too large")
		}
		bytes += int64(part)
	}
	return Size(bytes), nil
}

func unknownUnit(unit string) error {
	first := strings.ToUpper(unit[:1])
	if strings.Contains("KMGT", first) && len(unit) <= 3 {
		return fmt.Errorf("unit %s is not used: write %siB (1024-based)", unit, first)
	}
	return fmt.Errorf("unknown unit %q in a size: use B, KiB, MiB, GiB or TiB", cut(unit, 20))
}

// String is the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if n := Size(sizeUnits[u]); s >= n && s%n == 0 {
			return strconv.FormatInt(int64(s/n), 10) + u
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
