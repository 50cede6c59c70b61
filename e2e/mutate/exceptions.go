// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// exceptionList has a mutant's name and the reason why no test notices it, one per line, and
// is sorted. A mutant's name has no line of a file, so a change elsewhere in it needs no edit.
//
//go:embed exceptions.txt
var exceptionList string

// exceptions has reasons by the names of mutants.
type exceptions map[string]string

func parseExceptions(text string) (exceptions, error) {
	reasons, last := exceptions{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " | ")
		if i < 0 || strings.Count(line[:i], " | ") == 0 {
			return nil, fmt.Errorf("exception %q: want function | kind: code | reason", line)
		}
		if name := strings.TrimSpace(line[:i]); name <= last {
			return nil, fmt.Errorf("exception %q is there twice, or not in order", name)
		}
		last = strings.TrimSpace(line[:i])
		reasons[last] = line[i+3:]
	}
	return reasons, nil
}

// apply takes the exceptions out of an outcome, and returns how many those are and the
// names of the package's exceptions that are none.
func (e exceptions) apply(o *outcome, s *source) (excepted int, stale []string) {
	used := map[string]bool{}
	except := func(m mutant) bool {
		_, known := e[m.name()]
		if known {
			used[m.name()] = true
			excepted++
		}
		return known
	}
	o.lived, o.unreached = slices.DeleteFunc(o.lived, except), slices.DeleteFunc(o.unreached, except)
	for name := range e {
		if strings.HasPrefix(name, s.name()+".") && !used[name] {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return excepted, stale
}
