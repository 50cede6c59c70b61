// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Settings contains the operator's settings for a node. All directories are the node's own paths. Root
// is the path at which the agent sees the node's file system.
type Settings struct {
	Root string
	Mode report.Mode

	NetDir      string   // directory of network configurations: the runtime's or, under Multus, that of Multus or of its auxiliary chain
	BinDirs     []string // the runtime's directories of plugins
	StateDir    string   // survives a reboot; contains the credentials and the agent's state
	RunDir      string   // contains the agent's sockets and the backend's verdict, and the credentials while StateDir is full or read-only
	TmpfilesDir string   // systemd-tmpfiles' configuration, for mode multus-chain; if empty, nothing restores the entry at boot

	BesideIstioCNI bool // the list may contain istio-cni during a migration, but never with ambient mode

	Backend backend.Verdict // the result of the backend's test on this node

	Binary string // path of the agent's copy of the plugin, in the agent's file system, next to that of capture-cni-lookup
	Entry  conflist.Entry

	Credentials credentials.Settings
	Owner       string // the release that this agent belongs to

	Execute Executor  `json:"-"` // executes programs of the node; nil to start processes
	Disk    host.Disk `json:"-"` // makes operations fail in simulations; nil on a real node
}

// DefaultSettings returns the defaults of the agent's flags, except those about credentials. NetDir and
// BinDirs are those of kubeadm's nodes.
func DefaultSettings(root string) Settings {
	return Settings{
		Root: root, Mode: report.Auto,
		NetDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, StateDir: "/var/lib/capture-cni", RunDir: "/run/capture-cni",
		Binary: "/opt/capture-cni/capture-cni", Owner: "capture-cni",
		Entry: conflist.Entry{Conf: config.Default(), Asked: config.Default().Backend},
	}
}

// At returns the path at which the agent sees a path of the node.
func (s Settings) At(path string) string { return filepath.Join(s.Root, path) }

// AgentSocket returns the path, in the agent's container, of the agent's socket. It is empty if the
// operator disabled the socket.
func (s Settings) AgentSocket() string { return s.socket(filepath.Clean) }

// PodsSocket returns the path, in the agent's container, of the socket for pod requests. It is empty if
// the operator disabled the socket.
func (s Settings) PodsSocket() string { return s.socket(config.PodsSocket) }

// GuardSocket returns the path, in the guard's container, of the agent's socket.
func (s Settings) GuardSocket() string { return s.socket(config.GuardSocket) }

func (s Settings) socket(of func(agentSocket string) string) string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.At(of(s.Entry.Conf.AgentSocket))
}

const guardName = "guard"

// GuardDirectory returns the path, in the agent's container, of the guard's files.
func (s Settings) GuardDirectory() string { return s.At(s.RunDir) + "/" + guardName }

// Plugin returns the path, in the agent's container, of the plugin in the first of BinDirs.
func (s Settings) Plugin() string { return s.At(s.BinDirs[0]) + "/" + conflist.PluginType }

// CredentialDirs returns the directories for credentials, the preferred one first.
func (s Settings) CredentialDirs() []string { return []string{s.StateDir, s.RunDir} }

// BackendFault returns an error if the backend that the operator configured does not work on this node,
// or if Auto has no verdict. The agent then writes no entry, except to restore a lost one.
func (s Settings) BackendFault() error { return s.Backend.Fault(s.Entry.Asked) }

// KeepsBootFiles reports whether systemd-tmpfiles should create the entry at boot.
func (s Settings) KeepsBootFiles() bool { return s.Mode == report.MultusChain && s.TmpfilesDir != "" }
