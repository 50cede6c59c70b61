// SPDX-License-Identifier: Apache-2.0

// Package record carries the result of an ADD from the plugin to the node agent, by a datagram and
// without blocking. If no agent receives the record of a failed ADD, the plugin writes it to a
// directory, the spool. A failure to send or to write never fails or delays the ADD. The guard sends
// records about running pods by the same datagrams.
package record

import (
	"encoding/json"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Version is the version of Record's format.
const Version = 1

// Canary is the sandbox id with which the agent itself calls the plugin to test it. The plugin sends no
// record of such a call, because the call is not the ADD of a pod.
const Canary = "canary"

// Record is the result of one ADD, or of the guard's examination of a pod.
type Record struct {
	Version  int               `json:"version"`
	Time     time.Time         `json:"time"` // the beginning of the ADD; of the guard's records, when they were made
	Pod      capture.PodRef    `json:"pod"`
	Sandbox  string            `json:"sandbox"`         // the sandbox's id
	Trace    string            `json:"trace,omitempty"` // id of the runtime's trace, if the runtime passed one
	Verdict  Verdict           `json:"verdict"`
	Reason   capture.Reason    `json:"reason,omitempty"`
	Backend  string            `json:"backend,omitempty"`
	Stamp    string            `json:"stamp,omitempty"` // identifies the rules that an ADD applied
	Code     uint              `json:"code,omitempty"`  // CNI's error code, if the ADD failed
	Message  string            `json:"message,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Notes    []string          `json:"notes,omitempty"`  // about decisions that the settings make for every similar pod
	Stages   map[Stage]float64 `json:"stages,omitempty"` // seconds
}

// AddDuration adds to the duration of a stage.
func (r *Record) AddDuration(stage Stage, d time.Duration) {
	if r.Stages == nil {
		r.Stages = map[Stage]float64{}
	}
	r.Stages[stage] += d.Seconds()
}

// Encode returns the JSON of a record, with shortened texts and without invalid names. It returns nil if
// the record is still too large.
func Encode(r Record) []byte {
	r.Version = Version
	document, err := json.Marshal(r.fit())
	if err != nil || len(document) > MaxSize {
		return nil
	}
	return document
}
