// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// NodeAnnotation is the key of the Lease's annotation that contains the node's state.
const NodeAnnotation = "capture-cni.io/state"

// LeaseLabels returns the labels of the agents' Leases. Other Leases in the namespace do not have these
// labels.
func LeaseLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node-state"}
}

// NodeState is the state of a node.
type NodeState struct {
	Version  string // version of the agent
	Mode     Mode   // how the plugin is added to the runtime's CNI configuration
	Backend  string // backend in the plugin's entry; empty if Desired is absent, or the backend does not work
	Desired  string // the node's desired state: present or absent
	Findings Findings
	Pods     *Pods // nil while no guard reports pods

	PodVersion int // the agent's capture.PodVersion; 0 for release 0.3 or earlier, which knows no fence
}

// Good reports whether the node is in the desired state.
func (s NodeState) Good() bool { return len(s.Findings.Faults()) == 0 }

// Pods describes the node's running pods in the mesh, as the guard found them.
type Pods struct {
	States   map[Code]int                   `json:"states,omitempty"`   // pods by state
	Exempt   map[capture.ExemptionCause]int `json:"exempt,omitempty"`   // exempt pods by cause
	Named    []NamedPod                     `json:"named,omitempty"`    // pods that are not captured as desired, the worst first
	Omitted  int                            `json:"omitted,omitempty"`  // number of such pods that Named omits
	Repaired int                            `json:"repaired,omitempty"` // running pods that the guard repaired, or tried to, in the last hour
	Updates  map[string]int                 `json:"updates,omitempty"`  // number of pods that each value of guard.update would update
	Known    []string                       `json:"known,omitempty"`    // ShortUIDs of all pods that States counts, or as many as fit
}

// NamedPod is a pod of the mesh that is not captured as desired.
type NamedPod struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	State     Code                   `json:"state"`
	Cause     capture.ExemptionCause `json:"cause,omitempty"` // cause of an exempt pod's exemption
	Rules     int                    `json:"rules,omitempty"` // version of the pod's rules; 0 if unknown
}

// ShortUID returns the beginning of a pod's UID, which distinguishes the pod from others on its node.
func ShortUID(uid string) string { return uid[:min(len(uid), 8)] }

// Lacks reports whether a pod is certainly not one of those that States counts. It returns false if
// Known does not contain all counted pods.
func (p Pods) Lacks(uid string) bool {
	counted := 0
	for _, count := range p.States {
		counted += count
	}
	return counted == len(p.Known) && !slices.Contains(p.Known, ShortUID(uid))
}

// MaxNodeState is the largest size in bytes of an encoded state, and of encoded pods. The API server
// accepts 256 KiB of annotations.
const MaxNodeState = 32 << 10

// Encode returns the state as JSON of at most MaxNodeState bytes. Encode cuts long texts, omits
// findings, notes and pods beyond their limits, and omits further pods from the end if the state is
// still too large.
func (s NodeState) Encode() string {
	d := newNodeDocument(s)
	d.limit()
	for _, text := range d.texts() {
		*text = record.Cut(strings.ToValidUTF8(*text, "?"), maxText-len(record.Ellipsis))
		for len(encodeState(*text)) > 2*maxText { // the JSON of one byte can have six bytes
			*text = record.Cut(*text, len(*text)/2)
		}
	}
	pods := cmp.Or(s.Pods, &Pods{}).limited()
	if s.Pods != nil {
		d.Pods = &pods
	}
	return string(pods.shrink(func() []byte { return encodeState(d) }))
}

// Encode returns the pods as JSON of at most MaxNodeState bytes.
func (p Pods) Encode() []byte {
	p = p.limited()
	return p.shrink(func() []byte { return encodeState(p) })
}

// shrink removes named pods until the encoded text fits, or none is left.
func (p *Pods) shrink(encoded func() []byte) []byte {
	for {
		document := encoded()
		if len(document) <= MaxNodeState || len(p.Named) == 0 {
			return document
		}
		kept := len(p.Named) * 9 / 10
		p.Omitted, p.Named = min(p.Omitted+len(p.Named)-kept, maxCount), p.Named[:kept]
	}
}

// encodeState encodes a nodeDocument, Pods or a text. It never panics, because every value of these
// types can be encoded.
func encodeState(value any) []byte {
	document, err := json.Marshal(value)
	if err != nil {
		panic("nodestate: " + err.Error())
	}
	return document
}

// DecodeNode decodes the state in an annotation. It refuses a state that no agent would write. Errors:
// ErrNodeFormat.
func DecodeNode(text string) (s NodeState, err error) {
	var d nodeDocument
	if err := decodeState([]byte(text), &d); err != nil {
		return NodeState{}, fmt.Errorf("reading a node's state: %w", err)
	}
	if d.Format != nodeFormat {
		return NodeState{}, fmt.Errorf("%w %d, expected %d", ErrNodeFormat, d.Format, nodeFormat)
	}
	if err := d.check(); err != nil {
		return NodeState{}, fmt.Errorf("reading a node's state: %w", err)
	}
	return NodeState{d.Version, d.Mode, d.Backend, d.Desired, d.Document.findings(), d.Pods, d.PodVersion}, nil
}

// ErrNodeFormat is the error for a state with another format version than nodeFormat.
var ErrNodeFormat = errors.New("reading a node's state: it has format")

// DecodePods decodes the pods in a document.
func DecodePods(document []byte) (p Pods, err error) {
	err = decodeState(document, &p)
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return Pods{}, fmt.Errorf("reading the states of pods: %w", err)
	}
	return p, nil
}

func decodeState(document []byte, into any) error {
	if len(document) > MaxNodeState {
		return fmt.Errorf("%d bytes: expected at most %d", len(document), MaxNodeState)
	}
	return json.Unmarshal(document, into)
}

// comparePods orders pods by state, the worst first, and then by name.
func comparePods(a, b NamedPod) int {
	return cmp.Or(CompareStates(a.State, b.State), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// limited returns a copy of the pods that observes the limits of a state. It names at most maxPods
// pods, and omits pods with names that Kubernetes would not accept, which come from sandboxes that
// another program created.
func (p Pods) limited() Pods {
	named := slices.DeleteFunc(slices.Clone(p.Named), func(pod NamedPod) bool { return !pod.isValid() })
	slices.SortFunc(named, comparePods)
	kept := named[:min(len(named), maxPods)]
	known := slices.DeleteFunc(slices.Clone(p.Known), func(uid string) bool { return !uidForm.MatchString(uid) })
	slices.Sort(known)
	return Pods{
		States: limitCounts(p.States), Exempt: limitCounts(p.Exempt), Updates: limitCounts(p.Updates),
		Named: kept, Omitted: min(p.Omitted+len(p.Named)-len(kept), maxCount), Known: known[:min(len(known), maxKnown)],
		Repaired: min(p.Repaired, maxCount),
	}
}

func limitCounts[K ~string](counts map[K]int) map[K]int {
	limited := map[K]int{}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if isWord(string(key)) && counts[key] > 0 && len(limited) < maxCounts {
			limited[key] = min(counts[key], maxCount)
		}
	}
	return limited
}
