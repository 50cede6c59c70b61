// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Fleet is the state of the nodes that have an agent, should have one, had one, or run pods of the mesh,
// and the state of these pods.
type Fleet struct {
	Namespace  string      `json:"namespace"`  // namespace of the agents
	DaemonSets []DaemonSet `json:"daemonSets"` // sorted by name
	Nodes      []Node      `json:"nodes"`      // sorted by name
	Pods       []Pod       `json:"pods"`       // pods of the mesh that are not captured as desired or have istio-init; see CompareStates

	States map[report.Code]int            `json:"states"` // number of pods by state, as the guards and the API server report them
	Exempt map[capture.ExemptionCause]int `json:"exempt"` // number of exempt pods by cause
	Notes  []string                       `json:"notes,omitempty"`

	Updates map[string]int `json:"updates,omitempty"` // pods that each value of guard.update would update

	Unknown []string `json:"unknown,omitempty"` // facts that could not be read, with the reasons
}

// Node is the state of one node.
type Node struct {
	Name     string          `json:"name"`
	State    NodeState       `json:"state"`
	Findings report.Findings `json:"-"`              // MarshalJSON encodes them as reasons, codes and nextStep
	Kind     string          `json:"kind,omitempty"` // kernel, runtime, image and architecture, as the kubelet names them
	Version  string          `json:"version,omitempty"`
	Mode     report.Mode     `json:"mode,omitempty"`
	Backend  string          `json:"backend,omitempty"`
	Agent    string          `json:"agent,omitempty"`   // name of the agent's pod
	Reported time.Time       `json:"reported,omitzero"` // time of the agent's last report
	Meshed   int             `json:"meshed"`            // number of pods of the mesh, as the API server knows them
	Notes    []string        `json:"notes,omitempty"`   // the agent's notes
	agent    *Agent          // nil if the node has no agent
	pods     *report.Pods    // as the node's guard reports them, or nil

	podVersion int // the agent's capture.PodVersion; 0 if unknown
}

// MarshalJSON returns the node with the reasons for its state, their codes, and the next step.
func (n Node) MarshalJSON() ([]byte, error) {
	type fields Node
	return json.Marshal(struct {
		fields
		answer
	}{fields(n), answerOf(n.Findings)})
}

// answer is the format of findings in the output of status and explain.
type answer struct {
	Reasons []string `json:"reasons,omitempty"`
	Codes   []string `json:"codes,omitempty"`
	Next    string   `json:"nextStep,omitempty"`
}

func answerOf(f report.Findings) answer {
	return answer{
		f.Each(report.Finding.Summary), f.Each(func(one report.Finding) string { return string(one.Code) }), f.Next(),
	}
}

// NodeState is the state of a node.
type NodeState string

const (
	Ready      NodeState = "ready"      // in the desired state
	Removed    NodeState = "removed"    // clean, as desired
	Waiting    NodeState = "waiting"    // usually reaches the desired state without the operator's help
	Faulty     NodeState = "faulty"     // the node or its agent has a fault, or the node has a warning
	Stale      NodeState = "stale"      // the agent has stopped reporting
	Unreported NodeState = "unreported" // the agent has no Lease
	Outdated   NodeState = "outdated"   // the agent has an older specification, and stays until its pod is deleted
	NoAgent    NodeState = "no agent"   // the node has no agent, but should have one, had one, or runs pods of the mesh
)

// Good reports whether a node in this state needs no attention.
func (s NodeState) Good() bool { return s == Ready || s == Removed }

// Pod is a pod of the mesh that is not captured as desired, or has an init container istio-init.
type Pod struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Mesh      config.MeshName        `json:"mesh,omitempty"` // mesh whose annotations the pod has; empty without the permission to list pods
	Node      string                 `json:"node"`
	State     report.Code            `json:"state"`
	Cause     capture.ExemptionCause `json:"cause,omitempty"`
	Rules     int                    `json:"rules,omitempty"`     // version of the pod's rules; 0 if unknown
	Failure   string                 `json:"failure,omitempty"`   // error of the last ADD, if the pod has not started and an Event contains it
	IstioInit bool                   `json:"istioInit,omitempty"` // the pod has an init container istio-init
	Next      string                 `json:"nextStep,omitempty"`

	uid types.UID // see uidOnNode; empty without the permission to list pods
}

// Good reports whether the fleet needs no attention, as far as is known. It ignores pods that were
// injected later, because everyone who may annotate a running pod can cause that state.
func (f *Fleet) Good() bool {
	for _, set := range f.DaemonSets {
		if !set.Good() {
			return false
		}
	}
	for _, node := range f.Nodes {
		if !node.State.Good() {
			return false
		}
	}
	for state, count := range f.States {
		if count > 0 && state.IsMissing() && state != report.InjectedLater {
			return false
		}
	}
	return len(f.Nodes) > 0
}
