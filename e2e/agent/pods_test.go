// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// learnEarlierRules starts a pod with the plugin of the earlier release, which is
// installed, and keeps its rules.
func (n *node) learnEarlierRules(t *testing.T) *machine.Pod {
	t.Helper()
	s, err := n.AddPod(t, "web")
	lab.Check(t, err)
	n.EarlierRules, err = s.Host.ListRules(t.Context())
	lab.Check(t, err)
	if !strings.Contains(n.EarlierRules, "redirect to :15001") || !strings.Contains(n.EarlierRules, "redirect to :15006") {
		t.Fatalf("the earlier release captures nothing: %s", n.EarlierRules)
	}
	return s
}

// startUncaptured starts and stops a meshed pod, and returns an error if it is captured.
func (n *node) startUncaptured(t *testing.T) error {
	t.Helper()
	s, err := n.AddPod(t, "web")
	if err != nil {
		return err
	}
	return errors.Join(machine.ExpectNoRules(s.Host), s.Stop(t))
}
