// SPDX-License-Identifier: Apache-2.0

// Package settings is what the operator wants of a node.
package settings

import (
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Node is what the operator wants of one node. All directories are the node's
// own paths; Root is where the agent sees the node's file system.
type Node struct {
	Root string
	Mode terms.Mode

	NetDir      string   // the runtime's network configurations; in mode multus-chain, the directory of the chain
	BinDirs     []string // the runtime's plugins
	StateDir    string   // survives a reboot: credentials, and the agent's state
	RunDir      string   // the agent's socket, and the credentials while StateDir is full
	TmpfilesDir string   // in mode multus-chain: configuration of systemd-tmpfiles; empty: a boot removes the entry

	BesideIstioCNI bool // the entry may stand next to istio-cni's, for a migration; never with ambient mode

	Backend backend.Verdict // on the node

	Binary string // the agent's copy of the plugin, in its own file system; next to it is that of capture-cni-lookup
	Entry  entry.Entry

	Credentials CredentialSettings
	Owner       string // the release that this agent belongs to
}

// Default returns what the agent's flags are unless set; its directories are those of
// kubeadm's nodes.
func Default(root string) Node {
	return Node{
		Root: root, Mode: terms.Auto,
		NetDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, StateDir: "/var/lib/capture-cni", RunDir: "/run/capture-cni",
		Binary: "/opt/capture-cni/capture-cni", Owner: "capture-cni", Entry: entry.Entry{Conf: config.Default(), Asked: config.Default().Backend},
	}
}

// CredentialSettings are what the plugin reads pods with while the agent does not
// answer.
type CredentialSettings struct {
	OnNode bool          // false: no credentials on the node, and no program to use them
	Pod    record.PodRef // the agent's own, for the canary that precedes their removal
	kube.TokenSpec
	Server string // URL of the API server, as the node reaches it
	CAFile string // in the agent's own file system
}

// At returns a path of the node as the agent sees it.
func (s Node) At(path string) string { return filepath.Join(s.Root, path) }

// AgentSocket returns the agent's socket as the agent sees it, "" if the operator
// disabled it.
func (s Node) AgentSocket() string { return s.socket(filepath.Clean) }

// PodsSocket returns the socket at which the agent answers requests of pods, as the
// agent sees it, "" if the operator disabled it.
func (s Node) PodsSocket() string { return s.socket(config.PodsSocket) }

// GuardSocket returns the agent's socket as the guard sees it.
func (s Node) GuardSocket() string { return s.socket(config.GuardSocket) }

func (s Node) socket(of func(agentSocket string) string) string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.At(of(s.Entry.Conf.AgentSocket))
}

// GuardName is the guard's directory in the run directory.
const GuardName = "guard"

// GuardDirectory returns the directory of the guard's baselines, as the agent sees it.
func (s Node) GuardDirectory() string { return s.At(s.RunDir) + "/" + GuardName }

// Plugin returns the installed binary, as the agent sees it.
func (s Node) Plugin() string { return s.At(s.BinDirs[0]) + "/" + conflist.PluginType }

// CredentialDirs returns where credentials are written, in the order of preference.
func (s Node) CredentialDirs() []string { return []string{s.StateDir, s.RunDir} }

// BackendFault returns why the entry can't be written for the backend that the operator asks
// for.
func (s Node) BackendFault() error { return s.Backend.Fault(s.Entry.Asked) }

// KeepsBootFiles reports whether the entry is made anew at boot.
func (s Node) KeepsBootFiles() bool { return s.Mode == terms.MultusChain && s.TmpfilesDir != "" }
