// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// runtimeFault returns an error if the runtime does not answer, or reports a configuration that does not
// call the plugin or, in mode multus-chain, the chain. It returns nil in mode multus, and if the runtime
// does not report its configuration, or has no socket, because the agent then relies on the files. In
// mode auto, a missing socket is an error, because the runtime's report decides the mode. With
// --cri-socket none, runtimeFault returns nil in every mode.
func (n *Node) runtimeFault(ctx context.Context, mode report.Mode) error {
	if n.Runtime == nil || mode == report.Multus {
		return nil
	}
	loaded, err := n.Runtime.CNIConfig(ctx)
	if errors.Is(err, cri.ErrNoConfig) || mode != report.Auto && errors.Is(err, cri.ErrNoSocket) {
		return nil
	}
	if err == nil && mode == report.MultusChain {
		return auxiliaryChainFault(loaded, filepath.Base(n.Settings.NetDir))
	}
	if err == nil && !loaded.Calls(conflist.PluginType) {
		err = errors.New("the runtime has not loaded the entry: new pods start without the plugin")
	}
	return err
}

// auxiliaryChainFault returns an error if the runtime's configuration does not use the auxiliary chain
// of Multus with this name.
func auxiliaryChainFault(loaded cri.CNIConfig, name string) error {
	err := errors.New("the runtime has loaded no network")
	for _, network := range loaded.Networks {
		if err = conflist.CheckAuxiliaryChain([]byte(network.Config.Source), name); err == nil {
			return nil
		}
	}
	return err
}

// loadTimeout is the time that the agent waits for the runtime to load a drop-in. It is long, because
// mode auto keeps its choice, and a node is busiest when its agent starts.
// answerTimeout is the time after which the agent reports that the runtime does not answer.
const loadTimeout, answerTimeout = 30 * time.Second, 5 * time.Second

// loadsDropIn waits up to loadTimeout for the runtime to load a drop-in, and reports whether the
// runtime has loaded one. It returns false at once for a runtime that never reports its configuration,
// and an error if a request fails after answerTimeout, or if ctx ends.
func loadsDropIn(ctx context.Context, report func(context.Context) (cri.CNIConfig, error)) (bool, error) {
	for began := time.Now(); ; {
		waited := time.Since(began)
		loaded, err := report(ctx) // this can fail on a busy node
		switch {
		case err == nil && loaded.Calls(conflist.PluginType):
			return true, nil
		case errors.Is(err, cri.ErrNoConfig) || err == nil && waited > loadTimeout:
			return false, nil
		case err != nil && waited > answerTimeout:
			return false, conflist.Waiting("the runtime has not reported yet whether it loads a drop-in: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for the runtime to load a drop-in: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Runtime is the runtime that answered last, or zero if none has answered.
type Runtime struct {
	Program report.Runtime
	Socket  string
}

// IdentifyRuntime returns the runtime that answers, or otherwise the one that answered last. It logs
// the runtime when it is found and when it changes.
func (n *Node) IdentifyRuntime(ctx context.Context) Runtime {
	if n.Runtime == nil {
		return Runtime{}
	}
	loader := loaderOf(ctx, n.Settings, n.Runtime)
	now := Runtime{Program: loader.Runtime, Socket: n.Runtime.Socket()}
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Program == (report.Runtime{}) {
		return n.found
	}
	if now != n.found {
		n.log.Info("found the container runtime", "name", now.Program.Name, "version", now.Program.Version, "socket", now.Socket)
	}
	n.found, n.loader = now, loader
	return now
}

// runtimeLoader returns the settings by which the runtime chooses a list, as IdentifyRuntime last found
// them. If IdentifyRuntime has found no runtime yet, runtimeLoader asks the runtime.
func (n *Node) runtimeLoader(ctx context.Context) conflist.Loader {
	n.mu.Lock()
	loader := n.loader
	n.mu.Unlock()
	if loader.Runtime == (report.Runtime{}) {
		loader = loaderOf(ctx, n.Settings, n.Runtime)
	}
	return loader
}

// Rival returns the program that keeps removing the entry, or "unknown" if no file of the node
// identifies the program. The warning names the primary list and its network, if there is such a list.
func (n *Node) Rival(ctx context.Context) (writer string, warning report.Finding) {
	list, renamed := "no list in "+n.Settings.NetDir, ""
	_ = n.withLists(ctx, func(net conflist.Net) error { // there may be no list at the moment
		p, err := conflist.FindPrimary(net)
		if err != nil {
			return err
		}
		list = fmt.Sprintf("%s/%s, network %s", n.Settings.NetDir, p.File, conflist.Shown(p.List.Name))
		if p.Owner() == "cilium-cni" && n.Placed != report.DropIn { // Cilium does not remove drop-ins
			renamed = renamedByCilium(net.Dir)
		}
		return nil
	})
	what := fmt.Sprintf(" keeps removing the entry (mode %s, %s)", n.Placed, list)
	if renamed != "" {
		what = "Cilium" + what + "; it renamed " + renamed + ", as it does with cni.exclusive"
		return "cilium", report.Finding{Code: report.CiliumExclusive, Severity: report.Warning, Reason: what, Next: report.FixExclusive}
	}
	return "unknown", report.Finding{
		Code: report.EntryContended, Severity: report.Warning,
		Reason: "an unknown program" + what, Next: "find the program that writes there, or use another mode",
	}
}
