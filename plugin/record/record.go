// SPDX-License-Identifier: Apache-2.0

// Package record carries the result of an ADD from the plugin to the node agent: as
// a datagram that the plugin sends without blocking and, where no agent received
// it, as a file in the spool. The plugin never fails because of it. The guard
// sends in the same way what it found of running pods.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Version is that of Record's form.
const Version = 1

// Canary is the sandbox id of the agent's own calls of the plugin. They are no ADDs of
// a pod, and nothing is sent of them.
const Canary = "canary"

// Record is the result of one ADD, or of the guard's examination of a pod.
type Record struct {
	Version  int               `json:"version"`
	Time     time.Time         `json:"time"` // when it began
	Pod      PodRef            `json:"pod"`
	Sandbox  string            `json:"sandbox"` // its id
	Verdict  Verdict           `json:"verdict"`
	Reason   Reason            `json:"reason,omitempty"`
	Backend  string            `json:"backend,omitempty"`
	Stamp    string            `json:"stamp,omitempty"` // of the rules that an ADD applied
	Code     uint              `json:"code,omitempty"`  // of CNI, where the ADD failed
	Message  string            `json:"message,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Stages   map[Stage]float64 `json:"stages,omitempty"` // seconds
}

// PodRef names one pod; all of it is empty where it is not a Kubernetes pod.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// AddDuration adds to the duration of a stage.
func (r *Record) AddDuration(stage Stage, d time.Duration) {
	if r.Stages == nil {
		r.Stages = map[Stage]float64{}
	}
	r.Stages[stage] += d.Seconds()
}

// encode returns nil for a record that is too large though its texts were cut.
func encode(r Record) []byte {
	r.Version = Version
	document, err := json.Marshal(r.fit())
	if err != nil || len(document) > MaxSize {
		return nil
	}
	return document
}

// ErrVersion is the error for a record of a newer or older plugin.
var ErrVersion = errors.New("a record of another version")

// Read decodes a record strictly: what it says becomes labels of metrics, names
// of files and lines of a log.
func Read(document []byte) (Record, error) {
	r, err := read(document)
	if err != nil {
		return Record{}, fmt.Errorf("reading a record: %w", err)
	}
	return r, nil
}

func read(document []byte) (r Record, err error) {
	if len(document) > MaxSize {
		return r, fmt.Errorf("a record of %d bytes: expected at most %d", len(document), MaxSize)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(document, &head); err != nil {
		return r, errors.New(cut(err.Error(), maxFault))
	}
	if head.Version != Version {
		return r, fmt.Errorf("%w: %d", ErrVersion, head.Version)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, errors.New(cut(err.Error(), maxFault))
	}
	if !slices.Contains(Reasons(r.Verdict), r.Reason) {
		return r, fmt.Errorf("verdict %q with reason %q", cut(string(r.Verdict), maxFault/4), cut(string(r.Reason), maxFault/4))
	}
	return r, r.fault()
}
