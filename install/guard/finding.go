// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// State is the state of a pod of the mesh. States that are sent to the agent are
// reasons of records.
type State string

const (
	Captured   State = "captured"                 // has the desired rules, unchanged
	Uncaptured       = State(received.Uncaptured) // has no capture rules
	Drifted          = State(received.Drifted)    // has our rules, changed since ADD or a repair
	Outdated         = State(received.Outdated)   // has our rules, of another version or configuration
	Changed          = State(received.Changed)    // is captured; its annotations were edited since
	Foreign          = State(received.Foreign)    // is captured by another plugin
	Obstructed       = State(received.Obstructed) // has our rules, and a table that could keep packets from them
	Unknown    State = "unknown"                  // could not be examined
	Exempt     State = "exempt"                   // is in the mesh and not captured, by its own or the operator's choice

	InjectedLater = State(received.InjectedLater) // is in the mesh as the API server shows it, and was not when its sandbox was made
)

// States returns all states, in the order of the README.
func States() []State {
	return []State{Captured, Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater, Unknown, Exempt}
}

// Finding is the result of an examination.
type Finding struct {
	State    State
	Reason   string
	Repaired State // the state before this examination repaired the pod; empty where it did not
}

// isMissing reports whether the pod lacks the desired rules.
func (f Finding) isMissing() bool { return f.State == Uncaptured || f.State == Drifted }

func unknown(err error) Finding { return Finding{State: Unknown, Reason: err.Error()} }

func drifted(format string, args ...any) Finding {
	return Finding{State: Drifted, Reason: fmt.Sprintf(format, args...)}
}

// unreadable returns the finding for rules that could not be read: drifted where
// they exceed a limit or keep changing, which ADD's rules never do, else unknown.
func unreadable(err error) Finding {
	_, tooLarge := errors.AsType[nfnetlink.TooLarge](err)
	if tooLarge || errors.Is(err, nfnetlink.ErrChanging) {
		return drifted("%s", err)
	}
	return unknown(err)
}
