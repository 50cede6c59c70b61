// SPDX-License-Identifier: Apache-2.0

// Package report carries what came of an ADD from the plugin to the node agent:
// a datagram that nobody waits for and, where no agent took it, a file. The
// plugin never fails because of it. The guard tells in the same way what it
// found of pods that run.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version is that of Record's form.
const Version = 1

// Record is what came of one ADD, or of the guard's look at a pod.
type Record struct {
	Version  int               `json:"version"`
	Time     time.Time         `json:"time"` // when it began
	Pod      Pod               `json:"pod"`
	Sandbox  string            `json:"sandbox"` // the runtime's name for it
	Verdict  Verdict           `json:"verdict"`
	Reason   Reason            `json:"reason,omitempty"`
	Backend  string            `json:"backend,omitempty"`
	Code     uint              `json:"code,omitempty"` // of CNI, where the ADD failed
	Message  string            `json:"message,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Stages   map[Stage]float64 `json:"stages,omitempty"` // seconds
}

// Pod is which one; all of it is empty where it is not a Kubernetes pod.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Took adds to the time that a stage took.
func (r *Record) Took(stage Stage, d time.Duration) {
	if r.Stages == nil {
		r.Stages = map[Stage]float64{}
	}
	r.Stages[stage] += d.Seconds()
}

// Limits keep a record well below what a datagram may hold.
const (
	MaxSize     = 64 << 10
	maxMessage  = 2 << 10
	maxWarning  = 512
	maxWarnings = 8
)

// encode gives nil for a record that is too large though its texts were cut.
func encode(r Record) []byte {
	r.Version = Version
	r.Message = cut(r.Message, maxMessage)
	r.Warnings = slices.Clone(r.Warnings[:min(len(r.Warnings), maxWarnings)])
	for i, warning := range r.Warnings {
		r.Warnings[i] = cut(warning, maxWarning)
	}
	document, err := json.Marshal(r)
	if err != nil || len(document) > MaxSize {
		return nil
	}
	return document
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// ErrVersion is a record of a plugin that is newer or older than its reader.
var ErrVersion = errors.New("a record of another version")

// Read decodes a record strictly: what it says becomes labels of metrics.
func Read(document []byte) (Record, error) {
	var head struct{ Version int }
	if err := json.Unmarshal(document, &head); err != nil {
		return Record{}, fmt.Errorf("reading a record: %w", err)
	}
	if head.Version != Version {
		return Record{}, fmt.Errorf("reading a record: %w: %d", ErrVersion, head.Version)
	}
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("reading a record: %w", err)
	}
	if !slices.Contains(Reasons(r.Verdict), r.Reason) {
		return Record{}, fmt.Errorf("reading a record: verdict %q with reason %q", r.Verdict, r.Reason)
	}
	for stage := range r.Stages {
		if !slices.Contains(Stages(), stage) {
			return Record{}, fmt.Errorf("reading a record: stage %q", stage)
		}
	}
	return r, nil
}
