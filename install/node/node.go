// SPDX-License-Identifier: Apache-2.0

// Package node installs the plugin on a node, so that the runtime or Multus calls the plugin, and keeps
// it installed while the agent runs. It also finds obstacles before an installation, and removes
// capture-cni from the node on request.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// Node installs, verifies and removes the plugin on one node.
type Node struct {
	Settings Settings
	Store    *credentials.Store // writes the credentials
	Runtime  *cri.Client        // nil if the runtime is not asked, as with --cri-socket none
	log      *slog.Logger

	Credentials credentials.State // the valid credentials that Install found or wrote last; only Kubeconfig if the node should have none
	Mode        report.Mode       // mode in the settings or, once the agent has chosen one for Auto, that mode
	Placed      report.Mode       // mode of the entry, which differs from Mode while istio-cni prevents a change
	Others      []conflist.Other  // istio-cni and other meshes' plugins that PlaceEntry found last

	unsynced error // why the names of the agent's files may not be on the disk
	unmarked error // why the node's record that it has an entry could not be written
	mu       sync.Mutex
	found    Runtime         // the runtime that answered last
	loader   conflist.Loader // the settings of that runtime
}

// New returns a Node. api may be nil for a Node that is only verified or cleaned. runtime is nil if the
// runtime should not be asked, as with --cri-socket none.
func New(settings Settings, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{
		Settings: settings,
		Store:    credentials.New(settings.Root, settings.CredentialDirs(), settings.Credentials, api),
		Runtime:  runtime,
		log:      log,
		Mode:     settings.Mode,
		Placed:   settings.Mode,
		unsynced: host.ErrUnsynced,
	}
}

// Install brings the node into the desired state as far as possible, and reports what it could not do.
// It writes the entry, which makes the runtime call the plugin, after everything that the plugin needs.
// With renew, it requests a new token even if the current one is not old.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	n.syncNames()
	var report Report
	for _, directory := range n.Settings.BinDirs {
		report.Add(PartBinary, n.written(directory, n.installPrograms(ctx, directory)))
	}
	current, err := n.ensureCredentials(ctx, renew)
	report.Add(PartCredentials, n.written(n.Settings.StateDir, err))
	if current.Kubeconfig != "" {
		n.Credentials = current
	}
	report.Add(PartBackend, n.Settings.BackendFault())
	if report.IsGood(PartBinary) || n.pluginRuns(ctx) {
		_, err := n.PlaceEntry(ctx)
		report.Add(PartEntry, err)
	} else {
		report.Add(PartEntry, conflist.Waiting("the agent writes the entry once the plugin is installed"))
	}
	report.Mode = n.Placed
	return report
}

// syncNames syncs the directories of programs, state and lists, unless it has done so before, and each
// later write was synced. An earlier agent, which was killed, may have renamed a file without syncing
// its name, and an earlier sync may have failed. After a power cut, the file would be missing, although
// this agent found it. A directory that can't be synced is no fault of the node, because all files are
// there.
func (n *Node) syncNames() {
	if n.unsynced == nil {
		return
	}
	directories := slices.Concat(n.Settings.BinDirs, []string{n.Settings.StateDir, n.Settings.NetDir})
	failed := n.within(n.Settings.NetDir, func(net *host.Dir) error {
		below, err := net.Directories() // some have a drop-in, or had one
		for _, name := range below {
			directories = append(directories, n.Settings.NetDir+"/"+name)
		}
		return err
	})
	for _, path := range directories {
		if err := n.within(path, (*host.Dir).Sync); !host.IsAbsent(err) {
			failed = errors.Join(failed, err)
		}
	}
	if isNew(failed, n.unsynced) {
		n.log.Warn("syncing directories failed", "error", failed)
	}
	n.unsynced = failed
}

// isNew reports whether an error differs from the one that was logged before.
func isNew(err, logged error) bool {
	return err != nil && (logged == nil || err.Error() != logged.Error())
}

// written returns the error of a write in a directory. If the node's security module denied the write,
// written adds that to the error. It also records an ErrUnsynced for syncNames.
func (n *Node) written(directory string, err error) error {
	if errors.Is(err, host.ErrUnsynced) {
		n.unsynced = err
	}
	return host.ExplainDenial(host.OwnLabel(), n.Settings.At(directory), err)
}

// pluginRuns reports whether the plugin in every directory runs, even if it differs from the agent's
// copy.
func (n *Node) pluginRuns(ctx context.Context) bool {
	for _, directory := range n.Settings.BinDirs {
		if n.Settings.Execute.tryPlugin(ctx, n.Settings.At(directory)+"/"+conflist.PluginType) != nil {
			return false
		}
	}
	return true
}

func (n *Node) installPrograms(ctx context.Context, directory string) error {
	state, err := host.MakeDir(n.Settings.At(n.Settings.StateDir), n.Settings.Disk)
	if err != nil {
		return err
	}
	install := func(bin *host.Dir) error { return installPrograms(ctx, n.Settings, bin, state, n.log) }
	return errors.Join(n.within(directory, install), state.Close())
}

// within opens a directory of the node, and calls do with it.
func (n *Node) within(path string, do func(*host.Dir) error) error {
	directory, err := host.OpenDir(n.Settings.At(path), n.Settings.Disk)
	if err != nil {
		return err
	}
	return errors.Join(do(directory), directory.Close())
}

// PlaceEntry writes the entry into the CNI configuration of the runtime or of Multus, and removes the
// entries of other modes. But in mode owned, it keeps those entries while the runtime may load one of
// several lists. It writes nothing if withholdsEntry forbids that. changed reports whether it wrote a
// missing or outdated entry, except by tryDropIn.
func (n *Node) PlaceEntry(ctx context.Context) (changed bool, err error) {
	text := n.Settings.Entry.Text(cmp.Or(n.Credentials.Kubeconfig, n.Settings.StateDir+"/"+config.KubeconfigName))
	err = n.withLists(ctx, func(net conflist.Net) (err error) {
		if withholds, err := n.withholdsEntry(net); err != nil || withholds {
			return err
		}
		defer func() { err = errors.Join(err, n.ensureBootFiles(text)) }()
		if p, err := conflist.FindPrimary(net); err == nil && n.Settings.Mode == report.Auto && p.Accepts(n.Mode) != nil {
			n.Mode = report.Auto // the list's owner has written a file of another kind
		}
		if n.Placed, err = n.decide(ctx, net, text); err != nil {
			return err
		}
		if err := net.ClearTemps(); err != nil {
			return err
		}
		switch {
		case conflist.In(n.Placed).Fault(net, text) != nil:
			if err := conflist.In(n.Placed).Place(net, text); err != nil {
				return err
			}
			changed = true
			n.log.Info("placed the entry", "mode", n.Placed, "directory", n.Settings.NetDir)
		case n.Placed == report.DropIn && n.runtimeFault(ctx, report.DropIn) != nil: // an agent may have been killed before TriggerWatch
			if err := net.TriggerWatch(); err != nil {
				return err
			}
		}
		unmarked := n.written(n.Settings.StateDir, n.ensureIn(n.Settings.StateDir, placedName, nil))
		if isNew(unmarked, n.unmarked) {
			n.log.Warn("recording that the node has an entry failed", "error", unmarked)
		}
		n.unmarked = unmarked
		if n.Placed != report.Owned || !conflist.IsAmbiguous(net) { // otherwise the other lists need their entries
			err = conflist.RemoveExcept(net, n.Placed)
		}
		if !n.Placed.UnderMultus() {
			err = errors.Join(err, net.Called())
		}
		return err
	})
	return changed, n.written(n.Settings.NetDir, err)
}

// withLists opens NetDir, and calls do with it.
func (n *Node) withLists(ctx context.Context, do func(conflist.Net) error) error {
	return n.within(n.Settings.NetDir, func(net *host.Dir) error { return do(conflist.Net{Dir: net, Loader: n.runtimeLoader(ctx)}) })
}

// Verify returns the state of the node, and changes nothing. If the node should have no credentials,
// Verify also checks that the agent answers, because pods need the agent then.
func (n *Node) Verify(ctx context.Context) Report {
	report := n.VerifyMode(ctx, n.Mode)
	if !n.Settings.Credentials.OnNode {
		report.Add(PartPods, n.pingAgent(ctx))
	}
	return report
}

const pingTimeout = time.Second

// pingAgent returns nil if the agent answers requests for pods, and otherwise the reason.
func (n *Node) pingAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return lookup.Agent{Socket: n.Settings.PodsSocket()}.Ping(ctx)
}

// VerifyMode returns the state of the node for a given mode, and sends no request to the agent. It may
// run at the same time as Install, because Install does not change the fields that VerifyMode reads.
func (n *Node) VerifyMode(ctx context.Context, mode report.Mode) Report {
	found := Report{Mode: mode, Findings: n.Settings.Backend.Notes(n.Settings.Entry.Asked)}
	for _, directory := range n.Settings.BinDirs {
		found.Add(PartBinary, n.within(directory, func(bin *host.Dir) error { return programsFault(n.Settings, bin) }))
	}
	kubeconfig, err := n.credentialsFault()
	found.Add(PartCredentials, err)
	found.Add(PartBackend, n.Settings.BackendFault())
	warnings, err := n.examineEntry(ctx, kubeconfig, mode)
	if directory := filepath.Dir(kubeconfig); directory != n.Settings.StateDir {
		warnings = append(warnings, report.Finding{
			Code: report.CredentialsUnsaved, Severity: report.Warning,
			Reason: "the plugin's current credentials are only in " + directory +
				", which a reboot empties, because the disk of " + n.Settings.StateDir + " is full or read-only",
			Next: "free space on that disk, or make it writable",
		})
	}
	found.Findings = append(found.Findings, warnings...)
	found.Add(PartEntry, err)
	found.Add(PartEntry, n.bootFilesFault(n.Settings.Entry.Text(kubeconfig)))
	found.Add(PartRuntime, n.runtimeFault(ctx, mode))
	return found
}

// examineEntry returns an error if the entry is missing, wrong or forbidden by istio-cni, or if the
// runtime might not load it. It also returns warnings about istio-cni plugins in the list that may
// capture the same pods.
func (n *Node) examineEntry(ctx context.Context, kubeconfig string, mode report.Mode) (warnings report.Findings, err error) {
	err = n.withLists(ctx, func(net conflist.Net) error {
		others, mode, err := conflist.Beside(net, mode, n.Settings.BesideIstioCNI)
		if len(others) > 0 && err != nil {
			return err
		}
		warnings = conflist.CapturesTwice(others, mode)
		return conflist.Fault(net, mode, n.Settings.Entry.Text(kubeconfig))
	})
	return warnings, err
}
