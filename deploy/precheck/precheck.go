// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Level is how much a result matters.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"    // works, with a limit
	Problem Level = "problem" // does not work
)

// Result is one result of the check.
type Result struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Next    string `json:"nextStep,omitempty"`
}

// Report is the results, and how to install.
type Report struct {
	Results  []Result          `json:"results"`
	Values   map[string]string `json:"values"`   // of the chart, that are not the defaults
	Commands []string          `json:"commands"` // that install with these values

	namespace string
}

// Good reports whether nothing stands in the way.
func (r *Report) Good() bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool { return result.Level == Problem })
}

func (r *Report) add(level Level, subject, next, format string, args ...any) {
	r.Results = append(r.Results, Result{level, subject, fmt.Sprintf(format, args...), next})
}

// Check returns what stands in the way of an installation in a namespace.
func Check(c *Cluster, namespace string) *Report {
	r := &Report{Values: map[string]string{}, namespace: namespace}
	r.checkVersion(c.Version)
	r.checkNodes(c)
	r.checkInjectors(c)
	r.checkMeshes(c)
	r.checkCilium(c)
	r.checkCalico(c)
	r.checkNamespace(c)
	for _, err := range c.Unknown {
		r.add(Note, "permissions", "ask for the permission, or check this by hand", "%v", err)
	}
	r.Commands = append(r.Commands, r.helm())
	return r
}

// helm returns the command that installs the chart with the values.
func (r *Report) helm() string {
	line := []string{"helm", "-n", r.namespace, "install", "capture-cni", "deploy/chart"}
	for _, key := range slices.Sorted(maps.Keys(r.Values)) {
		line = append(line, "--set", key+"="+r.Values[key])
	}
	return strings.Join(line, " ")
}
