// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
)

// Node is one node, and what is known of it.
type Node struct {
	settings    Settings
	credentials credentials
	runtime     *cri.Client // nil where no CRI socket is configured
	log         *slog.Logger

	current secrets // as of the last pass
	mode    Mode    // decided, where the settings say Auto
}

// New returns a Node. api may be nil where nothing is installed, and runtime where
// no CRI socket is configured.
func New(settings Settings, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{settings: settings, credentials: credentials{settings, api}, runtime: runtime, log: log, mode: settings.Mode}
}

// Install brings the whole node into the desired state, as far as it can. The
// entry, which has the runtime call the plugin, comes after all that the plugin
// needs. renew asks for a new token whatever the old one's age.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	var report Report
	for _, folder := range n.settings.BinDirs {
		report.add(PartBinary, n.installBinary(ctx, folder))
	}
	current, err := n.credentials.ensure(ctx, renew)
	report.add(PartCredentials, err)
	if current.kubeconfig != "" {
		n.current = current
	}
	if n.current.kubeconfig != "" && (report.Is(PartBinary) || n.pluginRuns(ctx)) {
		_, err := n.PlaceEntry(ctx)
		report.add(PartEntry, err)
	} else {
		report.add(PartEntry, waiting("the entry is not written before the plugin and its credentials are in place"))
	}
	report.Mode = n.mode
	return report
}

// pluginRuns tells whether what is in place does for the time being, though it
// is not what the agent brings.
func (n *Node) pluginRuns(ctx context.Context) bool {
	for _, folder := range n.settings.BinDirs {
		if tryPlugin(ctx, n.settings.at(folder)+"/"+binaryName) != nil {
			return false
		}
	}
	return true
}

func (n *Node) installBinary(ctx context.Context, folder string) error {
	bin, err := n.open(folder)
	if err != nil {
		return err
	}
	state, err := host.MakeDir(n.settings.at(n.settings.StateDir))
	if err != nil {
		return errors.Join(err, bin.Close())
	}
	b := binaries{n.settings.Binary, state}
	listErr := n.settings.listDirectories(bin)
	changed, err := b.install(ctx, bin)
	if changed {
		n.log.Info("installed the plugin", "folder", folder)
		if err := b.keepLastGood(); err != nil {
			n.log.Warn("no copy of the plugin is kept for the day on which a new one does not run", "error", err)
		}
	}
	return errors.Join(listErr, err, bin.Close(), state.Close())
}

func (n *Node) open(folder string) (*host.Dir, error) { return host.OpenDir(n.settings.at(folder)) }

// PlaceEntry puts our entry where the runtime finds it, and takes away what
// other modes left. It tells whether anything had to be done.
func (n *Node) PlaceEntry(ctx context.Context) (changed bool, err error) {
	entry := n.settings.Entry.Text(n.current.kubeconfig)
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
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
		n.log.Info("placed our entry", "mode", n.mode, "folder", n.settings.NetDir)
	case n.mode == DropIn && n.runtimeFault(ctx, DropIn) != nil: // an agent was killed before it could stir
		if err := net.TriggerWatch(); err != nil {
			return false, err
		}
	}
	return changed, n.removeOtherModes(net)
}

func (n *Node) removeOtherModes(net *host.Dir) error {
	var errs []error
	for mode, placement := range placements {
		if mode != n.mode {
			errs = append(errs, placement.remove(net))
		}
	}
	return errors.Join(errs...)
}

// decide settles whether the mode fits this node and, for Auto, which one does.
// After an error that is still open.
func (n *Node) decide(ctx context.Context, net *host.Dir, entry []byte) error {
	switch n.mode {
	case Owned:
		looks, source := whereItLooks(ctx, n.settings, n.runtime)
		return looks.refuseBeside(Owned, source)
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

// tryDropIn tells whether the runtime, asked after a drop-in was placed, has
// loaded it. One in vain goes, as what other modes left, once the list holds our
// entry.
func (n *Node) tryDropIn(ctx context.Context, net *host.Dir, entry []byte) (loaded bool, err error) {
	p, err := findPrimary(net)
	if err != nil {
		return false, err
	}
	_, ownedErr := net.Read(ownedName)
	if n.runtime == nil || p.list.Ours() > 0 || ownedErr == nil {
		return false, nil // nobody to ask, or what is loaded may come from elsewhere
	}
	if err := (dropIn{}).place(net, entry); err != nil {
		return false, nil // the list lets none be loaded, or none can be written
	}
	return n.loadsDropIn(ctx)
}

// Verify looks whether the node is as Install would have it, and changes nothing.
func (n *Node) Verify(ctx context.Context) Report { return n.verify(ctx, n.mode) }

// verify may run beside Install: all that it reads of the Node stays as it is.
func (n *Node) verify(ctx context.Context, mode Mode) Report {
	report := Report{Mode: mode, Findings: []Finding{}}
	for _, folder := range n.settings.BinDirs {
		bin, err := n.open(folder)
		if err == nil {
			err = errors.Join(binaries{plugin: n.settings.Binary}.fault(bin), n.settings.directoriesFault(bin), bin.Close())
		}
		report.add(PartBinary, err)
	}
	kubeconfig, err := n.credentials.fault()
	report.add(PartCredentials, err)
	report.add(PartEntry, n.entryFault(kubeconfig, mode))
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
