// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// exceptionList has a mutant's name and the reason why no test notices it, one per line, and
// is sorted. A name is a function and a piece of its code, so a change elsewhere needs no edit.
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

// find returns the exception of a mutant: its name, or the start of it and an asterisk.
func (e exceptions) find(m mutant) (exception string, found bool) {
	for exception := range e {
		if start, isStart := strings.CutSuffix(exception, "*"); exception == m.name() || isStart && strings.HasPrefix(m.name(), start) {
			return exception, true
		}
	}
	return "", false
}

// apply takes the exceptions out of an outcome, and returns how many those are and the
// names of the package's exceptions that are none.
func (e exceptions) apply(o *outcome, s *source) (excepted int, stale []string) {
	used := map[string]bool{}
	except := func(m mutant) bool {
		exception, found := e.find(m)
		if found {
			used[exception] = true
			excepted++
		}
		return found
	}
	o.lived, o.unreached = slices.DeleteFunc(o.lived, except), slices.DeleteFunc(o.unreached, except)
	for exception := range e {
		if strings.HasPrefix(exception, s.name()+".") && !used[exception] {
			stale = append(stale, exception)
		}
	}
	slices.Sort(stale)
	return excepted, stale
}
