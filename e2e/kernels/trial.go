// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
)

// Trial says how pods start on a kernel that lacks something.
type Trial struct {
	Mesh          config.MeshName // Istio if it is empty
	Backend, Mode string          // with backend auto, the node chooses before the pods start
	OnlyIPv4      bool            // no dual stack: IPv6 is refused
	LoDown        bool            // as some interface plugins leave it
	Fence         bool            // the meshed pod has a fence
	Blocked       []string        // modules that can't be loaded, until an error names them
	Connections   int             // that the application makes; they stay open
	Repaired      bool            // also a pod whose connections began uncaptured
}

// Attempt is what came of two pods, one of them meshed. Texts are errors, and empty where
// there was none.
type Attempt struct {
	Blocked            []string
	Verdict            backend.Verdict
	Modules            []string // that are loaded after a choice
	Unmeshed           string   // ADD of the pod outside the mesh
	Add, Check, Del    string
	Answers            []string // to the application: "proxy", "direct" or an error
	Repair             Repair
	Left, LeftAfterDel string // rules of ours that are listed
}

// Repair is what came of one.
type Repair struct {
	Fault, Lost string
	Answer      string // to a new connection
}

// Run makes attempts until one succeeds, or fails for what is not blocked.
func (t Trial) Run() (Run, error) {
	content, err := json.Marshal(t)
	return Run{
		Name: fmt.Sprintf("%s, %s", t.Backend, cmp.Or(t.Mode, string(t.Mesh))), Directory: "/",
		Command: []string{filepath.Join(programDirectory, "attempt"), string(content)},
	}, err
}

// Attempts reads what a trial printed.
func Attempts(o Outcome) (attempts []Attempt, err error) {
	for line := range strings.Lines(o.Output) {
		if !strings.HasPrefix(line, "{") {
			continue // the plugin's log
		}
		var attempt Attempt
		if err := json.Unmarshal([]byte(line), &attempt); err != nil {
			return nil, err
		}
		attempts = append(attempts, attempt)
	}
	if o.Status != 0 || len(attempts) == 0 {
		return nil, fmt.Errorf("%s: status %d: %s", o.Name, o.Status, o.Output)
	}
	return attempts, nil
}
