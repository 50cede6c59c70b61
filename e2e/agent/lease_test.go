// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestLease publishes the node's state, what is wrong with it, and what the guard says
// of its pods.
func TestLease(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.API.PutNode("node-1")
	n.InstallOthers(t)
	a := n.StartBehind(t, []string{"env", "POD_NAMESPACE=mesh", "POD_NAME=agent-1"}, "--mode", "insert")
	state := n.published(t, func(s report.NodeState) bool { return s.Good() })
	if state.Mode != "insert" || state.Desired != "present" || state.Version == "" || state.Pods != nil {
		t.Errorf("published: %+v", state)
	}
	if holder := n.API.Lease("mesh", "node-1").Spec.HolderIdentity; holder == nil || *holder != "agent-1" {
		t.Errorf("the holder is %v", holder)
	}
	lab.Check(t, os.MkdirAll(n.RunDir+"/guard", 0o700))
	lab.Check(t, os.WriteFile(n.RunDir+"/guard/pods.json", []byte(`{"states":{"uncaptured":1},"named":[{"namespace":"shop","name":"web","state":"uncaptured"}]}`), 0o600))
	lab.Check(t, os.Rename(n.NetDir+"/"+machine.PrimaryName, n.Dir+"/hidden"))
	state = n.published(t, func(s report.NodeState) bool { return !s.Good() && s.Pods != nil })
	if fault := state.Findings.Faults()[0]; fault.Subject != "entry" || fault.Code != report.EntryMissing || len(state.Pods.Named) != 1 || state.Pods.Named[0].Name != "web" {
		t.Errorf("published: %+v", state)
	}
	a.Stop(t)
	if n.API.Lease("mesh", "node-1") == nil {
		t.Error("the agent deleted its Lease at its end")
	}
}

// published waits until a state is published that fits.
func (n *node) published(t *testing.T, fits func(report.NodeState) bool) (state report.NodeState) {
	t.Helper()
	lab.Eventually(t, func() (err error) {
		lease := n.API.Lease("mesh", "node-1")
		if lease == nil {
			return errors.New("there is no Lease")
		}
		state, err = report.DecodeNode(lease.Annotations[report.NodeAnnotation])
		if err == nil && !fits(state) {
			err = errors.New("published is " + state.Encode())
		}
		return err
	})
	return state
}
