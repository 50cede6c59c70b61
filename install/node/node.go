// SPDX-License-Identifier: Apache-2.0

// Package node brings one node into the desired state, in which the runtime calls the
// plugin for every pod, and removes everything from it on request.
package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/programs"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// Node installs, verifies and removes the plugin on one node.
type Node struct {
	settings    settings.Node
	credentials *credentials.Store
	runtime     *cri.Client // nil with --cri-socket none
	log         *slog.Logger

	current credentials.State // of the last successful Install
	mode    terms.Mode        // of the settings; Auto until it is decided
	found   Runtime
	placed  terms.Mode // of the entry, which differs from mode while istio-cni keeps the agent from a change
	others  []entry.Other
}

// New returns a Node. api may be nil where nothing is installed, and runtime where
// the runtime is not asked.
func New(settings settings.Node, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{settings: settings, credentials: credentials.New(settings, api), runtime: runtime, log: log, mode: settings.Mode, placed: settings.Mode}
}

// Settings returns what the operator wants of the node.
func (n *Node) Settings() settings.Node { return n.settings }

// Mode returns the decided mode, Auto until there is one.
func (n *Node) Mode() terms.Mode { return n.mode }

// Placed returns the mode of the entry on the node.
func (n *Node) Placed() terms.Mode { return n.placed }

// Others returns the plugins of other meshes that the last call of PlaceEntry found.
func (n *Node) Others() []entry.Other { return n.others }

// Credentials returns the state that the last successful Install left.
func (n *Node) Credentials() credentials.State { return n.current }

// Store returns what writes the credentials.
func (n *Node) Store() *credentials.Store { return n.credentials }

// Install brings the node into the desired state, as far as it can. It writes the
// entry, with which the runtime calls the plugin, after all that the plugin needs.
// renew requests a new token whatever the old one's age.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	var report Report
	for _, directory := range n.settings.BinDirs {
		report.Add(PartBinary, n.explained(directory, n.installPrograms(ctx, directory)))
	}
	current, err := n.ensureCredentials(ctx, renew)
	report.Add(PartCredentials, n.explained(n.settings.StateDir, err))
	if current.Kubeconfig != "" {
		n.current = current
	}
	if n.current.Kubeconfig != "" && (report.IsGood(PartBinary) || n.pluginRuns(ctx)) {
		_, err := n.PlaceEntry(ctx)
		report.Add(PartEntry, err)
	} else {
		report.Add(PartEntry, entry.Waiting("the agent writes the text once the plugin and its credentials are installed"))
	}
	report.Mode = n.placed
	return report
}

// explained returns the error of a write in a directory, with the security module that
// denied it, if one did.
func (n *Node) explained(directory string, err error) error {
	return host.ExplainDenial(host.OwnLabel(), n.settings.At(directory), err)
}

// pluginRuns reports whether the installed plugins run, whether or not they are the
// agent's copy.
func (n *Node) pluginRuns(ctx context.Context) bool {
	for _, directory := range n.settings.BinDirs {
		if programs.TryPlugin(ctx, n.settings.At(directory)+"/"+conflist.PluginType) != nil {
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
	state, err := host.MakeDir(n.settings.At(n.settings.StateDir))
	if err != nil {
		return errors.Join(err, bin.Close())
	}
	errs := []error{programs.ListDirectories(n.settings, bin)}
	for _, p := range programs.Of(n.settings, state) {
		errs = append(errs, n.installProgram(ctx, p, bin))
	}
	return errors.Join(append(errs, bin.Close(), state.Close())...)
}

func (n *Node) installProgram(ctx context.Context, p programs.Program, bin *host.Dir) error {
	changed, err := p.Install(ctx, bin)
	if changed {
		n.log.Info("installed a program", "name", p.Name, "directory", bin.Path())
		if err := p.KeepLastGood(); err != nil {
			n.log.Warn("keeping a copy of a program failed: without it the agent can't replace one that does not run", "name", p.Name, "error", err)
		}
	}
	return err
}

func (n *Node) open(directory string) (*host.Dir, error) {
	return host.OpenDir(n.settings.At(directory))
}

// PlaceEntry writes the entry into the runtime's CNI configuration and removes the
// entries of other modes. It reports whether it wrote the entry.
func (n *Node) PlaceEntry(ctx context.Context) (changed bool, err error) {
	changed, err = n.placeEntry(ctx)
	return changed, n.explained(n.settings.NetDir, err)
}

func (n *Node) placeEntry(ctx context.Context) (changed bool, err error) {
	text := n.settings.Entry.Text(n.current.Kubeconfig)
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, net.Close(), n.ensureBootFiles(text)) }()
	if n.placed, err = n.decide(ctx, net, text); err != nil {
		return false, err
	}
	if err := net.ClearTemps(); err != nil {
		return false, err
	}
	switch {
	case entry.In(n.placed).Fault(net, text) != nil:
		if err := entry.In(n.placed).Place(net, text); err != nil {
			return false, err
		}
		changed = true
		n.log.Info("placed the entry", "mode", n.placed, "directory", n.settings.NetDir)
	case n.placed == terms.DropIn && n.runtimeFault(ctx, terms.DropIn) != nil: // an agent was killed before TriggerWatch
		if err := net.TriggerWatch(); err != nil {
			return false, err
		}
	}
	return changed, entry.RemoveExcept(net, n.placed)
}

// Verify reports whether the node is in the desired state. It changes nothing. Without
// credentials on the node, pods need an agent that answers.
func (n *Node) Verify(ctx context.Context) Report {
	report := n.VerifyMode(ctx, n.mode)
	if !n.settings.Credentials.OnNode {
		report.Add(PartPods, n.pingAgent(ctx))
	}
	return report
}

const pingTimeout = time.Second

// pingAgent returns why the agent does not answer requests of pods, nil if it does.
func (n *Node) pingAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return lookup.Agent{Socket: n.settings.PodsSocket()}.Ping(ctx)
}

// VerifyMode is Verify as if the mode were decided, without a request to the agent. It may
// run concurrently with Install, which changes no field that it reads.
func (n *Node) VerifyMode(ctx context.Context, mode terms.Mode) Report {
	report := Report{Mode: mode, Findings: []Finding{}}
	for _, directory := range n.settings.BinDirs {
		bin, err := n.open(directory)
		if err == nil {
			err = programs.DirectoriesFault(n.settings, bin)
			for _, p := range programs.Of(n.settings, nil) {
				err = errors.Join(err, p.Fault(bin))
			}
			err = errors.Join(err, bin.Close())
		}
		report.Add(PartBinary, err)
	}
	kubeconfig, err := n.credentialsFault()
	report.Add(PartCredentials, err)
	report.Add(PartEntry, n.entryFault(kubeconfig, mode))
	report.Add(PartEntry, n.bootFilesFault(n.settings.Entry.Text(kubeconfig)))
	report.Add(PartRuntime, n.runtimeFault(ctx, mode))
	return report
}

func (n *Node) entryFault(kubeconfig string, mode terms.Mode) error {
	text := n.settings.Entry.Text(kubeconfig)
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return err
	}
	defer net.Close()
	others, mode, err := entry.Beside(net, mode, n.settings.BesideIstioCNI)
	if len(others) > 0 && err != nil {
		return err
	}
	return entry.Fault(net, mode, text)
}
