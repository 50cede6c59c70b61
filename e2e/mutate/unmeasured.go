// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// unmeasuredList has the packages that are left out when none are named.
//
//go:embed unmeasured.txt
var unmeasuredList string

// unmeasured is a package that is left out.
type unmeasured struct{ name, reason, provedBy string }

func parseUnmeasured(text string) (list []unmeasured, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 3 || slices.Contains(fields, "") {
			return nil, fmt.Errorf("left out package %q: want package | reason | package of tests", line)
		}
		if len(list) > 0 && fields[0] <= list[len(list)-1].name {
			return nil, fmt.Errorf("left out package %q is there twice, or not in order", fields[0])
		}
		list = append(list, unmeasured{fields[0], fields[1], fields[2]})
	}
	return list, nil
}

// measured returns the sources of the packages that are not left out.
func measured(sources []*source, leftOut []unmeasured) []*source {
	return slices.DeleteFunc(sources, func(s *source) bool {
		return slices.ContainsFunc(leftOut, func(u unmeasured) bool { return u.name == s.name() })
	})
}
