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
}

// New returns a Node. api may be nil where nothing is installed, and runtime where
// the runtime is not asked.
func New(settings Settings, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{settings: settings, credentials: credentials{settings, api, &tokenRequests{}}, runtime: runtime, log: log, mode: settings.Mode}
}

// Install brings the node into the desired state, as far as it can. It writes the
// entry, with which the runtime calls the plugin, after all that the plugin needs.
// renew requests a new token whatever the old one's age.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	var report Report
	for _, directory := range n.settings.BinDirs {
		report.add(PartBinary, n.installPrograms(ctx, directory))
	}
	current, err := n.ensureCredentials(ctx, renew)
	report.add(PartCredentials, err)
	if current.kubeconfig != "" {
		n.current = current
	}
	if n.current.kubeconfig != "" && (report.IsGood(PartBinary) || n.pluginRuns(ctx)) {
		_, err := n.PlaceEntry(ctx)
		report.add(PartEntry, err)
	} else {
		report.add(PartEntry, waiting("the agent writes the entry once the plugin and its credentials are installed"))
	}
	report.Mode = n.mode
	return report
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
	if err := n.decide(ctx, net, entry); err != nil {
		return false, err
	}
	if err := net.ClearTemps(); err != nil {
		return false, err
	}
	switch {
	case placements[n.mode].fault(net, entry) != nil:
		if err := placements[n.mode].place(net, entry); err != nil {
			return false, err
		}
		changed = true
		n.log.Info("placed the entry", "mode", n.mode, "directory", n.settings.NetDir)
	case n.mode == DropIn && n.runtimeFault(ctx, DropIn) != nil: // an agent was killed before TriggerWatch
		if err := net.TriggerWatch(); err != nil {
			return false, err
		}
	}
	for mode, placement := range placements {
		if mode != n.mode {
			err = errors.Join(err, placement.remove(net))
		}
	}
	return changed, err
}

// decide refuses a mode that the runtime's configuration rules out, and for Auto
// decides on the mode. After an error the mode stays Auto.
func (n *Node) decide(ctx context.Context, net *host.Dir, entry []byte) error {
	switch n.mode {
	case Owned:
		reported, source := runtimeConfigOf(ctx, n.settings, n.runtime)
		return reported.checkMaxConfNum(Owned, source)
	case Auto:
		loaded, err := n.tryDropIn(ctx, net, entry)
		if err != nil {
			return err
		}
		n.mode = Insert
		if loaded {
			n.mode = DropIn
		}
	}
	return nil
}

// tryDropIn places a drop-in and reports whether the runtime has loaded it. PlaceEntry
// removes one that it has not, as an entry of another mode.
func (n *Node) tryDropIn(ctx context.Context, net *host.Dir, entry []byte) (loaded bool, err error) {
	p, err := findPrimary(net)
	if err != nil {
		return false, err
	}
	_, ownedErr := net.Read(ownedName)
	if p.list.Ours() > 0 || ownedErr == nil || !n.mayLoadDropIn(ctx) {
		return false, nil // the first two: the runtime may have loaded another entry of capture-cni
	}
	if err := (dropIn{}).place(net, entry); err != nil {
		return false, nil // the list forbids drop-ins, or it can't be written
	}
	return n.loadsDropIn(ctx)
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
	if mode != Auto {
		return placements[mode].fault(net, entry)
	}
	if (dropIn{}).fault(net, entry) == nil {
		return nil
	}
	return inserted{}.fault(net, entry)
}
