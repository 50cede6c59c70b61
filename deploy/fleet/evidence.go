// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
)

// Evidence contains the facts from which an explanation is concluded, by their source. A field is nil if
// its source was not needed, has no facts, or could not be read. In the last case, Missing contains the
// reason.
type Evidence struct {
	Events  []EventEvidence `json:"events,omitempty"` // the last Events about the pod's capture or sandbox
	Pod     *PodEvidence    `json:"pod,omitempty"`
	Node    *NodeEvidence   `json:"node,omitempty"`
	Agent   *AgentEvidence  `json:"agent,omitempty"`
	Missing []Missing       `json:"missing,omitempty"`
}

// EventEvidence is an Event about the pod.
type EventEvidence struct {
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Count   int32     `json:"count"`
	Last    time.Time `json:"last,omitzero"`
	Message string    `json:"message"`
}

// PodEvidence contains the API server's facts about the pod.
type PodEvidence struct {
	Phase   corev1.PodPhase `json:"phase"`
	Created time.Time       `json:"created"`
	UID     types.UID       `json:"uid"`
}

// NodeEvidence is the state of the pod's node, from the node's Lease and agent.
type NodeEvidence struct {
	State    NodeState
	Findings report.Findings
	Version  string // version of the agent
}

// MarshalJSON returns the evidence with the reasons for the state, their codes, and the next step.
func (n NodeEvidence) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		State NodeState `json:"state"`
		answer
		Version string `json:"version,omitempty"`
	}{n.State, answerOf(n.Findings), n.Version})
}

// AgentEvidence is the answer of the agent on the pod's node.
type AgentEvidence struct {
	Agent     string             `json:"agent"` // name of the agent's pod
	Container string             `json:"container"`
	Answer    report.Explanation `json:"answer"`
}

// Missing is a source that could not be read.
type Missing struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
}

func (e *Explanation) missing(source, reason string) {
	e.Evidence.Missing = append(e.Evidence.Missing, Missing{source, reason})
}
