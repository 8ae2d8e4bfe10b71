package cron

import (
	"errors"
	"time"
)

// Zone loads an IANA zone from the data inside the binary. "Local" is refused because it is another zone on another machine, and "" because it is none.
func Zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("zone Local depends on the machine")
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" {
		return nil, errors.New("there is no such time zone")
	}
	return loc, nil
}
