// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
)

// Node installs, verifies and removes the plugin on one node.
type Node struct {
	settings    Settings
	credentials credentials
	runtime     *cri.Client // nil with --cri-socket none
	log         *slog.Logger

	current secrets // of the last successful Install
	mode    Mode    // of the settings; Auto until it is decided
	found   foundRuntime
	placed  Mode // of the entry, which differs from mode while istio-cni keeps the agent from a change
	others  []otherMesh
}

// New returns a Node. api may be nil where nothing is installed, and runtime where
// the runtime is not asked.
func New(settings Settings, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{settings: settings, credentials: credentials{settings, api, &tokenRequests{}}, runtime: runtime, log: log, mode: settings.Mode, placed: settings.Mode}
}

// Install brings the node into the desired state, as far as it can. It writes the
// entry, with which the runtime calls the plugin, after all that the plugin needs.
// renew requests a new token whatever the old one's age.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	var report Report
	for _, directory := range n.settings.BinDirs {
		report.add(PartBinary, n.explained(directory, n.installPrograms(ctx, directory)))
	}
	current, err := n.ensureCredentials(ctx, renew)
	report.add(PartCredentials, n.explained(n.settings.StateDir, err))
	if current.kubeconfig != "" {
		n.current = current
	}
	if n.current.kubeconfig != "" && (report.IsGood(PartBinary) || n.pluginRuns(ctx)) {
		_, err := n.PlaceEntry(ctx)
		report.add(PartEntry, n.explained(n.settings.NetDir, err))
	} else {
		report.add(PartEntry, waiting("the agent writes the entry once the plugin and its credentials are installed"))
	}
	report.Mode = n.placed
	return report
}

// explained returns the error of a write in a directory, with the security module that
// denied it, if one did.
func (n *Node) explained(directory string, err error) error {
	return explainDenial(ownLabel(), n.settings.at(directory), err)
}

// pluginRuns reports whether the installed plugins run, whether or not they are the
// agent's copy.
func (n *Node) pluginRuns(ctx context.Context) bool {
	for _, directory := range n.settings.BinDirs {
		if tryPlugin(ctx, n.settings.at(directory)+"/"+binaryName) != nil {
			return false
		}
	}
	return true
}

func (n *Node) installPrograms(ctx context.Context, directory string) error {
	bin, err := n.open(directory)
	if err != nil {
		return err
	}
	state, err := host.MakeDir(n.settings.at(n.settings.StateDir))
	if err != nil {
		return errors.Join(err, bin.Close())
	}
	errs := []error{n.settings.listDirectories(bin)}
	for _, p := range n.settings.programs(state) {
		errs = append(errs, n.installProgram(ctx, p, bin))
	}
	return errors.Join(append(errs, bin.Close(), state.Close())...)
}

func (n *Node) installProgram(ctx context.Context, p program, bin *host.Dir) error {
	changed, err := p.install(ctx, bin)
	if changed {
		n.log.Info("installed a program", "name", p.name, "directory", bin.Path())
		if err := p.keepLastGood(); err != nil {
			n.log.Warn("keeping a copy of a program failed: without it the agent can't replace one that does not run", "name", p.name, "error", err)
		}
	}
	return err
}

func (n *Node) open(directory string) (*host.Dir, error) {
	return host.OpenDir(n.settings.at(directory))
}

// PlaceEntry writes the entry into the runtime's CNI configuration and removes the
// entries of other modes. It reports whether it wrote the entry.
func (n *Node) PlaceEntry(ctx context.Context) (changed bool, err error) {
	entry := n.settings.Entry.Text(n.current.kubeconfig)
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, net.Close(), n.ensureBootFiles(entry)) }()
	if n.placed, err = n.decide(ctx, net, entry); err != nil {
		return false, err
	}
	if err := net.ClearTemps(); err != nil {
		return false, err
	}
	switch {
	case placements[n.placed].fault(net, entry) != nil:
		if err := placements[n.placed].place(net, entry); err != nil {
			return false, err
		}
		changed = true
		n.log.Info("placed the entry", "mode", n.placed, "directory", n.settings.NetDir)
	case n.placed == DropIn && n.runtimeFault(ctx, DropIn) != nil: // an agent was killed before TriggerWatch
		if err := net.TriggerWatch(); err != nil {
			return false, err
		}
	}
	for mode, placement := range placements {
		if mode != n.placed {
			err = errors.Join(err, placement.remove(net))
		}
	}
	return changed, err
}

// Verify reports whether the node is in the desired state. It changes nothing. Without
// credentials on the node, pods need an agent that answers.
func (n *Node) Verify(ctx context.Context) Report {
	report := n.verify(ctx, n.mode)
	if !n.settings.Credentials.OnNode {
		report.add(PartPods, n.pingAgent(ctx))
	}
	return report
}

const pingTimeout = time.Second

// pingAgent returns why the agent does not answer requests of pods, nil if it does.
func (n *Node) pingAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return podlookup.Agent{Socket: n.settings.PodsSocket()}.Ping(ctx)
}

// verify may run concurrently with Install, which changes no field that it reads.
func (n *Node) verify(ctx context.Context, mode Mode) Report {
	report := Report{Mode: mode, Findings: []Finding{}}
	for _, directory := range n.settings.BinDirs {
		bin, err := n.open(directory)
		if err == nil {
			err = n.settings.directoriesFault(bin)
			for _, p := range n.settings.programs(nil) {
				err = errors.Join(err, p.fault(bin))
			}
			err = errors.Join(err, bin.Close())
		}
		report.add(PartBinary, err)
	}
	kubeconfig, err := n.credentialsFault()
	report.add(PartCredentials, err)
	report.add(PartEntry, n.entryFault(kubeconfig, mode))
	report.add(PartEntry, n.bootFilesFault(n.settings.Entry.Text(kubeconfig)))
	report.add(PartRuntime, n.runtimeFault(ctx, mode))
	return report
}

func (n *Node) entryFault(kubeconfig string, mode Mode) error {
	entry := n.settings.Entry.Text(kubeconfig)
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return err
	}
	defer net.Close()
	others, mode, err := n.settings.besideOthers(net, mode)
	if len(others) > 0 && err != nil {
		return err
	}
	if mode != Auto {
		return placements[mode].fault(net, entry)
	}
	if (dropIn{}).fault(net, entry) == nil {
		return nil
	}
	return inserted{}.fault(net, entry)
}
