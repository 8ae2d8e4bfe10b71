package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// field is one of the five: its name in errors and the values that it may take.
type field struct {
	name     string
	min, max int
	names    []string // names[i] stands for min+i
	question bool     // `?` is allowed
}

// The five fields in order. The weekday goes up to 7, which is Sunday again.
var fields = [5]field{
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of month", min: 1, max: 31, question: true},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", min: 0, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, question: true},
}

func (s *spec) parse(texts []string) error {
	sets := [5]*uint64{&s.minute, &s.hour, &s.dom, &s.month, &s.dow}
	for i, f := range fields {
		set, err := f.parse(texts[i])
		if err != nil {
			return fmt.Errorf("%s field %q: %w", f.name, texts[i], err)
		}
		*sets[i] = set
	}
	if s.dow&(1<<7) != 0 {
		s.dow |= 1
	}
	star := func(i int) bool { return texts[i][0] == '*' || texts[i][0] == '?' }
	s.interval = star(0) || star(1)
	s.anyDay = star(2) || star(4)
	return nil
}

// parse reads a comma-separated list into a set of bits.
func (f field) parse(text string) (uint64, error) {
	var set uint64
	for _, part := range strings.Split(text, ",") {
		bits, err := f.part(part)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

func (f field) part(part string) (uint64, error) {
	span, stepText, stepped := strings.Cut(part, "/")
	lo, hi, err := f.span(span, stepped)
	if err != nil {
		return 0, err
	}
	step := 1
	if stepped {
		if step, err = number(stepText); err != nil {
			return 0, fmt.Errorf("step: %w", err)
		}
		if step < 1 || step > f.max-f.min {
			return 0, fmt.Errorf("step %d is not between 1 and %d", step, f.max-f.min)
		}
	}
	var set uint64
	for v := lo; v <= hi; v += step {
		set |= 1 << v
	}
	return set, nil
}

// span reads what stands before a step: `*`, a value, or a range. A single value with a step runs to the end of the field.
func (f field) span(text string, stepped bool) (lo, hi int, err error) {
	last := f.max
	if f.max == 7 {
		last = 6 // `*` must not count Sunday twice
	}
	if text == "*" || text == "?" && f.question {
		return f.min, last, nil
	}
	from, to, ranged := strings.Cut(text, "-")
	if lo, err = f.value(from); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		if hi, err = f.value(to); err != nil {
			return 0, 0, err
		}
		if hi == 0 && lo > 0 && f.max == 7 && strings.EqualFold(to, "sun") {
			hi = 7 // FRI-SUN is what people write
		}
	case stepped:
		hi = max(lo, last)
	default:
		hi = lo
	}
	if lo > hi {
		return 0, 0, fmt.Errorf("range %q runs backwards", text)
	}
	return lo, hi, nil
}

func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	v, err := number(text)
	if err != nil {
		return 0, err
	}
	if v < f.min || v > f.max {
		return 0, fmt.Errorf("%d is not between %d and %d", v, f.min, f.max)
	}
	return v, nil
}

// number accepts ASCII digits only: strconv would take signs as well.
func number(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is out of range", text)
	}
	return v, nil
}
