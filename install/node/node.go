// SPDX-License-Identifier: Apache-2.0

// Package node brings one node into the desired state, in which the runtime calls the
// plugin for every pod, and keeps it there for as long as the agent runs. It finds what would
// fail before anything is installed, and removes everything from the node on request.
package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

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
	Runtime  *cri.Client        // nil with --cri-socket none
	log      *slog.Logger

	Credentials credentials.State // that the last successful Install left
	Mode        report.Mode       // of the settings; Auto until it is decided
	Placed      report.Mode       // of the entry, which differs from Mode while istio-cni keeps the agent from a change
	Others      []conflist.Other  // the plugins of other meshes that the last call of PlaceEntry found

	mu     sync.Mutex
	found  Runtime         // the one that answered last
	loader conflist.Loader // of it
}

// New returns a Node. api may be nil where nothing is installed, and runtime where
// the runtime is not asked.
func New(settings Settings, api *kube.Client, runtime *cri.Client, log *slog.Logger) *Node {
	return &Node{
		Settings: settings,
		Store:    credentials.New(settings.Root, settings.CredentialDirs(), settings.Credentials, api),
		Runtime:  runtime,
		log:      log,
		Mode:     settings.Mode,
		Placed:   settings.Mode,
	}
}

// Install brings the node into the desired state, as far as it can. It writes the
// entry, with which the runtime calls the plugin, after all that the plugin needs.
// renew requests a new token whatever the old one's age.
func (n *Node) Install(ctx context.Context, renew bool) Report {
	var report Report
	for _, directory := range n.Settings.BinDirs {
		report.Add(PartBinary, n.explained(directory, n.installPrograms(ctx, directory)))
	}
	current, err := n.ensureCredentials(ctx, renew)
	report.Add(PartCredentials, n.explained(n.Settings.StateDir, err))
	if current.Kubeconfig != "" {
		n.Credentials = current
	}
	report.Add(PartBackend, n.Settings.BackendFault())
	if n.Credentials.Kubeconfig != "" && (report.IsGood(PartBinary) || n.pluginRuns(ctx)) {
		_, err := n.PlaceEntry(ctx)
		report.Add(PartEntry, err)
	} else {
		report.Add(PartEntry, conflist.Waiting("the agent writes the text once the plugin and its credentials are installed"))
	}
	report.Mode = n.Placed
	return report
}

// explained adds to the error of a write in a directory the security module that denied it, if one did.
func (n *Node) explained(directory string, err error) error {
	return host.ExplainDenial(host.OwnLabel(), n.Settings.At(directory), err)
}

// pluginRuns reports whether the installed plugins run, whether or not they are the
// agent's copy.
func (n *Node) pluginRuns(ctx context.Context) bool {
	for _, directory := range n.Settings.BinDirs {
		if tryPlugin(ctx, n.Settings.At(directory)+"/"+conflist.PluginType) != nil {
			return false
		}
	}
	return true
}

func (n *Node) installPrograms(ctx context.Context, directory string) error {
	state, err := host.MakeDir(n.Settings.At(n.Settings.StateDir))
	if err != nil {
		return err
	}
	install := func(bin *host.Dir) error { return installPrograms(ctx, n.Settings, bin, state, n.log) }
	return errors.Join(n.within(directory, install), state.Close())
}

// within calls do with a directory of the node.
func (n *Node) within(path string, do func(*host.Dir) error) error {
	directory, err := host.OpenDir(n.Settings.At(path))
	if err != nil {
		return err
	}
	return errors.Join(do(directory), directory.Close())
}

// PlaceEntry writes the entry into the runtime's CNI configuration and removes the
// entries of other modes. It reports whether it wrote the entry.
func (n *Node) PlaceEntry(ctx context.Context) (changed bool, err error) {
	text := n.Settings.Entry.Text(n.Credentials.Kubeconfig)
	err = n.withLists(ctx, func(net conflist.Net) (err error) {
		if withholds, err := n.withholdsEntry(net.Dir); err != nil || withholds {
			return err
		}
		defer func() { err = errors.Join(err, n.ensureBootFiles(text)) }()
		if p, err := conflist.FindPrimary(net); err == nil && n.Settings.Mode == report.Auto && p.Accepts(n.Mode) != nil {
			n.Mode = report.Auto // its owner has written another kind of file
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
		case n.Placed == report.DropIn && n.runtimeFault(ctx, report.DropIn) != nil: // an agent was killed before TriggerWatch
			if err := net.TriggerWatch(); err != nil {
				return err
			}
		}
		if err := n.ensureIn(n.Settings.StateDir, placedName, nil); err != nil {
			n.log.Warn("writing that the node has an entry failed", "error", err)
		}
		err = conflist.RemoveExcept(net, n.Placed)
		if !n.Placed.UnderMultus() {
			err = errors.Join(err, net.Called())
		}
		return err
	})
	return changed, n.explained(n.Settings.NetDir, err)
}

// withLists calls do with the runtime's directory of conflists.
func (n *Node) withLists(ctx context.Context, do func(conflist.Net) error) error {
	return n.within(n.Settings.NetDir, func(net *host.Dir) error { return do(conflist.Net{Dir: net, Loader: n.runtimeLoader(ctx)}) })
}

// Verify reports whether the node is in the desired state. It changes nothing. Without
// credentials on the node, pods need an agent that answers.
func (n *Node) Verify(ctx context.Context) Report {
	report := n.VerifyMode(ctx, n.Mode)
	if !n.Settings.Credentials.OnNode {
		report.Add(PartPods, n.pingAgent(ctx))
	}
	return report
}

const pingTimeout = time.Second

// pingAgent returns why the agent does not answer requests of pods, nil if it does.
func (n *Node) pingAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return lookup.Agent{Socket: n.Settings.PodsSocket()}.Ping(ctx)
}

// VerifyMode is Verify as if the mode were decided, without a request to the agent. It may
// run concurrently with Install, which changes no field that it reads.
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
			Reason: "the plugin's credentials are only in " + directory +
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

// examineEntry warns of a plugin next to the entry that captures the same pods. Error: what
// is wrong with the entry.
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
