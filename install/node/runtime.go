// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// runtimeFault compares the entry with what the runtime reports. Where the runtime
// does not report it, or has no socket, the files decide; while the runtime has to
// decide on the mode, a missing socket is a fault.
func (n *Node) runtimeFault(ctx context.Context, mode Mode) error {
	if n.runtime == nil || mode == Multus {
		return nil
	}
	loaded, err := n.runtime.CNIConfig(ctx)
	if errors.Is(err, cri.ErrNoConfig) || mode != Auto && errors.Is(err, cri.ErrNoSocket) {
		return nil
	}
	if err == nil && !loaded.Calls(conflist.PluginType) {
		err = errors.New("the runtime has not loaded our entry: new pods start without the plugin")
	}
	return err
}

// loadTime is how long a runtime may take to load a file that it watches.
const loadTime = 5 * time.Second

// loadsDropIn waits for the runtime to load a drop-in. It reports false only if
// the runtime, asked after loadTime, has not loaded it, or never reports what it
// has loaded. Without an answer nothing is known: that is an error.
func (n *Node) loadsDropIn(ctx context.Context) (bool, error) {
	for deadline := time.Now().Add(loadTime); ; {
		late := time.Now().After(deadline)
		loaded, err := n.runtime.CNIConfig(ctx) // fails now and then where a node is busy
		switch {
		case err == nil && loaded.Calls(conflist.PluginType):
			return true, nil
		case errors.Is(err, cri.ErrNoConfig) || late && err == nil:
			return false, nil
		case late:
			return false, waiting("whether the runtime loads a drop-in is not known yet: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("asking the runtime whether it loads a drop-in: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// isCRIO goes by the name that the runtime reports.
func isCRIO(ctx context.Context, runtime *cri.Client) bool {
	version, err := runtime.Version(ctx)
	return err == nil && version.Name == "cri-o"
}

// meshedPods names the pods that run on the node and depend on the plugin.
func (n *Node) meshedPods(ctx context.Context) (pods []string, err error) {
	sandboxes, err := n.runtime.Sandboxes(ctx)
	for _, sandbox := range sandboxes {
		if capture.Meshed(sandbox.Annotations) {
			pods = append(pods, sandbox.Namespace+"/"+sandbox.Name)
		}
	}
	return pods, err
}
