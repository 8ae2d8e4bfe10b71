package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// field is one of the six: its name in errors and the values that it may take.
type field struct {
	name     string
	min, max int
	names    []string // names[i] stands for min+i
	question bool     // `?` is allowed
	// special reads what depends on the month, and reports whether it was that; nil = there is no such thing in this field.
	special func(f field, part string, d *days) (bool, error)
}

// The fields in order, the first of which is optional. The weekday goes up to 7, which is Sunday again.
var fields = [6]field{
	{name: "second", min: 0, max: 59},
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of month", min: 1, max: 31, question: true, special: dayOfMonth},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", min: 0, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, question: true, special: dayOfWeek},
}

// parse reads six fields, or with a second of 0 the last five.
func (s *spec) parse(texts []string) error {
	withSeconds := len(texts) == len(fields)
	if !withSeconds {
		texts = append([]string{"0"}, texts...)
	}
	sets := [6]*uint64{&s.second, &s.minute, &s.hour, &s.dom, &s.month, &s.dow}
	for i, f := range fields {
		set, err := f.parse(texts[i], &s.days)
		if err != nil {
			return fmt.Errorf("%s field %q: %w", f.name, texts[i], err)
		}
		*sets[i] = set
	}
	if s.dow&(1<<7) != 0 {
		s.dow |= 1
	}
	star := func(i int) bool { return texts[i][0] == '*' || texts[i][0] == '?' }
	s.interval = star(0) || star(1) || star(2)
	s.anyDay = star(3) || star(5)
	return nil
}

// parse reads a comma-separated list into a set of bits, and into d what depends on the month.
func (f field) parse(text string, d *days) (uint64, error) {
	var set uint64
	for _, part := range strings.Split(text, ",") {
		if f.special != nil {
			if ok, err := f.special(f, part, d); err != nil {
				return 0, err
			} else if ok {
				continue
			}
		}
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
		return 0, foreign(text, err)
	}
	if v < f.min || v > f.max {
		return 0, fmt.Errorf("%d is not between %d and %d", v, f.min, f.max)
	}
	return v, nil
}

// foreign names what other cron dialects have and this one has not.
func foreign(text string, err error) error {
	switch {
	case strings.Contains(text, "~"):
		return fmt.Errorf("%q: a random range is not supported: use jitter", text)
	case strings.HasPrefix(strings.ToUpper(text), "H"):
		return fmt.Errorf("%q: H (of Jenkins) is not supported: use jitter", text)
	case strings.ContainsAny(text, "#"), strings.HasSuffix(strings.ToUpper(text), "L"), strings.HasSuffix(strings.ToUpper(text), "W"):
		return fmt.Errorf("%q: L and W belong into the day fields, # into the day of week", text)
	}
	return err
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
