// SPDX-License-Identifier: Apache-2.0

package guard

import "github.com/capture-cni/capture-cni/plugin/record"

// State is how a pod of the mesh stands. Those that the agent hears of are the
// reasons of records.
type State string

const (
	// Captured pods hold the rules that they were to get, unchanged.
	Captured State = "captured"
	// Uncaptured pods hold nobody's rules.
	Uncaptured = State(record.Uncaptured)
	// Drifted pods hold rules of ours that somebody has changed.
	Drifted = State(record.Drifted)
	// Outdated pods hold rules of ours that another version, or another
	// configuration, made.
	Outdated = State(record.Outdated)
	// Changed pods are captured as they were to be; their annotations say
	// something else by now.
	Changed = State(record.Changed)
	// Foreign pods are captured by somebody else.
	Foreign = State(record.Foreign)
	// Obstructed pods hold rules of ours, and another table that could keep
	// packets from them.
	Obstructed = State(record.Obstructed)
	// Unknown is a pod that could not be looked at.
	Unknown State = "unknown"
	// Exempt pods are in the mesh and not captured: their own containers or
	// annotations, or the operator's excludeNamespaces, say so.
	Exempt State = "exempt"
)

// States are all that an operator may see of, in the order of the README.
func States() []State {
	return []State{Captured, Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, Unknown, Exempt}
}

// Finding is what a look at a pod gave.
type Finding struct {
	State    State
	Reason   string
	Repaired State // what the pod was before this look put it right; empty where it did not
}

// isMissing tells that the pod does not have the rules that it was to get.
func (f Finding) isMissing() bool { return f.State == Uncaptured || f.State == Drifted }
