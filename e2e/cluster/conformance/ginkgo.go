// SPDX-License-Identifier: Apache-2.0

// Package conformance runs suites of other projects on the cluster: Kubernetes'
// conformance tests of networks, and those of the container runtime interface.
package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Outcome is how a spec ended.
type Outcome struct {
	State   string // passed, failed, timedout …; in ginkgo's words
	Took    time.Duration
	Message string // of what failed
}

// Passed says whether the spec ran and found nothing.
func (o Outcome) Passed() bool { return o.State == "passed" }

// Outcomes are those of the specs that ran, by name.
type Outcomes map[string]Outcome

// report is the part of ginkgo's JSON that is read, one element a suite.
type report []struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// Run runs a command that writes ginkgo's report to NAME.json in a directory, and returns what
// the report says. The output of the command becomes NAME.log there. Specs that fail are no error.
func Run(command *exec.Cmd, dir, name string) (Outcomes, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // its children end, too
	command.WaitDelay = time.Minute
	if err := command.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return nil, fmt.Errorf("running %s: %w", command.Path, err)
	}
	content, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, fmt.Errorf("%w: see %s", err, log.Name())
	}
	return parse(content)
}

// parse reads ginkgo's JSON. Specs that were not chosen are left out; what fails before or
// after all specs is an error.
func parse(content []byte) (Outcomes, error) {
	var suites report
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	outcomes := Outcomes{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			outcome := Outcome{spec.State, spec.RunTime, spec.Failure.Message}
			switch {
			case spec.LeafNodeType != "It" && !outcome.Passed():
				return nil, fmt.Errorf("%s %s: %s", spec.LeafNodeType, spec.State, spec.Failure.Message)
			case spec.LeafNodeType == "It" && spec.State != "skipped" && spec.State != "pending":
				outcomes[name] = outcome
			}
		}
	}
	if len(outcomes) == 0 {
		return nil, errors.New("no spec ran")
	}
	return outcomes, nil
}
