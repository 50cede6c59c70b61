// SPDX-License-Identifier: Apache-2.0

// Package record carries the result of an ADD from the plugin to the node agent: as
// a datagram that the plugin sends without blocking and, where no agent received
// it, as a file in the spool. The plugin never fails because of it. The guard
// sends in the same way what it found of running pods.
package record

import (
	"encoding/json"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
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
	Pod      capture.PodRef    `json:"pod"`
	Sandbox  string            `json:"sandbox"` // its id
	Verdict  Verdict           `json:"verdict"`
	Reason   capture.Reason    `json:"reason,omitempty"`
	Backend  string            `json:"backend,omitempty"`
	Stamp    string            `json:"stamp,omitempty"` // of the rules that an ADD applied
	Code     uint              `json:"code,omitempty"`  // of CNI, where the ADD failed
	Message  string            `json:"message,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Notes    []string          `json:"notes,omitempty"`  // on what the mesh's settings choose for every such pod
	Stages   map[Stage]float64 `json:"stages,omitempty"` // seconds
}

// AddDuration adds to the duration of a stage.
func (r *Record) AddDuration(stage Stage, d time.Duration) {
	if r.Stages == nil {
		r.Stages = map[Stage]float64{}
	}
	r.Stages[stage] += d.Seconds()
}

// Encode returns nil for a record that is too large though its texts were cut.
func Encode(r Record) []byte {
	r.Version = Version
	document, err := json.Marshal(r.fit())
	if err != nil || len(document) > MaxSize {
		return nil
	}
	return document
}
