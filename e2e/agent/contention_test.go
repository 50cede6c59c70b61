// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// hasEntry returns an error unless a runtime would call the plugin.
func (n *node) hasEntry() error {
	got, err := n.LoadedTypes()
	if err == nil && !strings.Contains(got, "capture-cni") {
		err = fmt.Errorf("a runtime would call %q", got)
	}
	return err
}

// TestDropInComesBack removes the drop-in, or its directory: the agent puts it back.
func TestDropInComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.StartReady(t, "--mode", "dropin")
	directory := n.NetDir + "/kindnet"
	for i, remove := range []func() error{
		func() error { return os.Remove(directory + "/capture-cni.conf") },
		func() error { return os.Rename(directory, n.Dir+"/gone") },
		func() error { return os.Remove(directory + "/capture-cni.conf") },
	} {
		lab.Check(t, remove())
		t.Logf("removal %d", i)
		lab.Eventually(t, func() error { return exists(directory + "/capture-cni.conf") })
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
