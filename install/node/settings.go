// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/report"
)

// Settings is what the operator wants of one node. All directories are the node's
// own paths; Root is where the agent sees the node's file system.
type Settings struct {
	Root string
	Mode report.Mode

	NetDir      string   // the runtime's network configurations; in mode multus-chain, the directory of the chain
	BinDirs     []string // the runtime's plugins
	StateDir    string   // survives a reboot: credentials, and the agent's state
	RunDir      string   // the agent's socket, and the credentials while StateDir is full
	TmpfilesDir string   // in mode multus-chain: configuration of systemd-tmpfiles; empty: a boot removes the entry

	BesideIstioCNI bool // the entry may stand next to istio-cni's, for a migration; never with ambient mode

	Backend backend.Verdict // on the node

	Binary string // the agent's copy of the plugin, in its own file system; next to it is that of capture-cni-lookup
	Entry  conflist.Entry

	Credentials credentials.Settings
	Owner       string // the release that this agent belongs to
}

// DefaultSettings returns what the agent's flags are unless set; its directories are those of
// kubeadm's nodes.
func DefaultSettings(root string) Settings {
	return Settings{
		Root: root, Mode: report.Auto,
		NetDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, StateDir: "/var/lib/capture-cni", RunDir: "/run/capture-cni",
		Binary: "/opt/capture-cni/capture-cni", Owner: "capture-cni",
		Entry: conflist.Entry{Conf: config.Default(), Asked: config.Default().Backend},
	}
}

// At returns a path of the node as the agent sees it.
func (s Settings) At(path string) string { return filepath.Join(s.Root, path) }

// AgentSocket returns the agent's socket as the agent sees it, "" if the operator
// disabled it.
func (s Settings) AgentSocket() string { return s.socket(filepath.Clean) }

// PodsSocket returns the socket at which the agent answers requests of pods, as the
// agent sees it, "" if the operator disabled it.
func (s Settings) PodsSocket() string { return s.socket(config.PodsSocket) }

// GuardSocket returns the agent's socket as the guard sees it.
func (s Settings) GuardSocket() string { return s.socket(config.GuardSocket) }

func (s Settings) socket(of func(agentSocket string) string) string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.At(of(s.Entry.Conf.AgentSocket))
}

// guardName is the guard's directory in the run directory.
const guardName = "guard"

// GuardDirectory returns the directory of the guard's baselines, as the agent sees it.
func (s Settings) GuardDirectory() string { return s.At(s.RunDir) + "/" + guardName }

// Plugin returns the installed binary, as the agent sees it.
func (s Settings) Plugin() string { return s.At(s.BinDirs[0]) + "/" + conflist.PluginType }

// CredentialDirs returns where credentials are written, in the order of preference.
func (s Settings) CredentialDirs() []string { return []string{s.StateDir, s.RunDir} }

// BackendFault returns why the entry can't be written for the backend that the operator asks
// for.
func (s Settings) BackendFault() error { return s.Backend.Fault(s.Entry.Asked) }

// KeepsBootFiles reports whether the entry is made anew at boot.
func (s Settings) KeepsBootFiles() bool { return s.Mode == report.MultusChain && s.TmpfilesDir != "" }
