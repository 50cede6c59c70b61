// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Captor is another project's program that captures a pod.
type Captor struct {
	Name, Program string
	// Configuration is that of a CNI plugin, in which DIRECTORY stands for that of its kubeconfig.
	Configuration string
	// Args are those of an init container, whose image has all programs.
	Args []string
}

// Captured is what came of a pod.
type Captured struct {
	Name, Fault string
	Answer      string // to the application: "proxy", "direct" or an error
}

// Capture has each captor capture a pod.
func Capture(captors []Captor) (Run, error) {
	content, err := json.Marshal(captors)
	return Run{Name: "captors", Directory: "/", Command: []string{filepath.Join(programDirectory, "attempt"), "captors", string(content)}}, err
}

// CapturedBy reads what a run of Capture printed.
func CapturedBy(o Outcome) (results []Captured, err error) {
	for line := range strings.Lines(o.Output) {
		var result Captured
		if json.Unmarshal([]byte(line), &result) == nil && result.Name != "" {
			results = append(results, result)
		}
	}
	if o.Status != 0 {
		return nil, fmt.Errorf("status %d: %s", o.Status, o.Output)
	}
	return results, nil
}

// With adds programs of this machine.
func (s Suite) With(paths ...string) (Suite, error) {
	a := newArchive()
	for _, path := range paths {
		if err := a.copy(filepath.Join(programDirectory, filepath.Base(path)), path); err != nil {
			return Suite{}, err
		}
	}
	return Suite{append(slices.Clip(s.content), a.bytes()...)}, nil
}
