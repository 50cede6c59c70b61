// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// acceptance is a line of allowed.txt: why a vulnerability does no harm here, and until
// when that is not looked at again.
type acceptance struct {
	id     string
	until  time.Time
	reason string
}

// parse reads lines of an ID, a date and a reason. Those that begin with # are comments.
func parse(text string) (accepted []acceptance, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%q: expected an ID, a date as 2027-01-31 and a reason", line)
		}
		until, err := time.Parse(time.DateOnly, fields[1])
		if err != nil {
			return nil, fmt.Errorf("%q: expected a date as 2027-01-31: %w", line, err)
		}
		accepted = append(accepted, acceptance{fields[0], until, fields[2]})
	}
	return accepted, nil
}

// compare returns an error for each vulnerability that is not accepted, and for each
// acceptance that has ended or is of no vulnerability.
func compare(found []vulnerability, accepted []acceptance, now time.Time) error {
	var errs []error
	for _, v := range found {
		if !slices.ContainsFunc(accepted, func(a acceptance) bool { return a.id == v.id }) {
			errs = append(errs, errors.New(v.String()))
		}
	}
	for _, a := range accepted {
		switch {
		case !slices.ContainsFunc(found, func(v vulnerability) bool { return v.id == a.id }):
			errs = append(errs, fmt.Errorf("%s is not called any more: remove its line", a.id))
		case now.After(a.until):
			errs = append(errs, fmt.Errorf("%s was accepted until %s: look at it again (%s)", a.id, a.until.Format(time.DateOnly), a.reason))
		}
	}
	return errors.Join(errs...)
}
