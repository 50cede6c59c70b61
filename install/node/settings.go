// SPDX-License-Identifier: Apache-2.0

// Package node keeps one node in the desired state, in which the runtime calls the
// plugin for every pod, and removes everything from it on request.
package node

import (
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Mode is how the plugin is added to the runtime's CNI configuration.
type Mode string

const (
	// Auto is DropIn if the runtime reports that it has loaded the drop-in, else Insert.
	Auto Mode = "auto"
	// DropIn writes a file of the agent's own next to the primary conflist.
	DropIn Mode = "dropin"
	// Insert writes the entry into the conflist that the runtime loads.
	Insert Mode = "insert"
	// Owned writes a conflist that embeds the primary one and sorts before all others.
	Owned Mode = "owned"
	// Multus writes a configuration that network attachments refer to.
	Multus Mode = "multus"
	// MultusChain writes the entry into the auxiliary chain of Multus.
	MultusChain Mode = "multus-chain"
)

// underMultus reports whether Multus calls the plugin. It passes on no annotations, and
// the runtime does not report what Multus has loaded.
func (m Mode) underMultus() bool { return m == Multus || m == MultusChain }

// Settings are what the operator wants of a node. All directories are the node's
// own paths; Root is where the agent sees the node's file system.
type Settings struct {
	Root string
	Mode Mode

	NetDir      string   // the runtime's network configurations; in mode multus-chain, the directory of the chain
	BinDirs     []string // the runtime's plugins
	StateDir    string   // survives a reboot: credentials, and the agent's state
	RunDir      string   // the agent's socket, and the credentials while StateDir is full
	TmpfilesDir string   // in mode multus-chain: configuration of systemd-tmpfiles; empty: a boot removes the entry

	BesideIstioCNI bool // the entry may stand next to istio-cni's, for a migration; never with ambient mode

	Binary string // the agent's copy of the plugin, in its own file system; next to it is that of capture-cni-lookup
	Entry  Entry

	Credentials CredentialSettings
	Owner       string // the release that this agent belongs to
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

// at returns a path of the node as the agent sees it.
func (s Settings) at(path string) string { return filepath.Join(s.Root, path) }

// AgentSocket returns the agent's socket as the agent sees it, "" if the operator
// disabled it.
func (s Settings) AgentSocket() string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.at(s.Entry.Conf.AgentSocket)
}

// PodsSocket returns the socket at which the agent answers requests of pods, as the
// agent sees it, "" if the operator disabled it.
func (s Settings) PodsSocket() string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.at(config.PodsSocket(s.Entry.Conf.AgentSocket))
}

// GuardSocket returns the agent's socket as the guard sees it.
func (s Settings) GuardSocket() string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.at(config.GuardSocket(s.Entry.Conf.AgentSocket))
}

// guardName is the guard's directory in the run directory.
const guardName = "guard"

// GuardDirectory returns the directory of the guard's baselines, as the agent sees it.
func (s Settings) GuardDirectory() string { return s.at(s.RunDir) + "/" + guardName }

// Plugin returns the installed binary, as the agent sees it.
func (s Settings) Plugin() string { return s.at(s.BinDirs[0]) + "/" + binaryName }

// credentialDirs returns where credentials are written, in the order of preference.
func (s Settings) credentialDirs() []string { return []string{s.StateDir, s.RunDir} }
