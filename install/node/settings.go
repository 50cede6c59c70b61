// SPDX-License-Identifier: Apache-2.0

// Package node keeps one node in the state in which its runtime calls the
// plugin for every pod, and takes all of it away again when it is told to.
package node

import (
	"path/filepath"

	"github.com/capture-cni/capture-cni/install/kube"
)

// Mode is how our entry gets before the runtime.
type Mode string

const (
	// Auto is DropIn where the runtime is then seen to have loaded it, else Insert.
	Auto Mode = "auto"
	// DropIn puts a file of our own beside the primary's list; nobody's file is edited.
	DropIn Mode = "dropin"
	// Insert puts our entry into the list that the runtime would load.
	Insert Mode = "insert"
	// Owned puts a list of our own, which embeds the primary's, before all others.
	Owned Mode = "owned"
	// Multus puts a configuration of our own where network attachments are looked for.
	Multus Mode = "multus"
)

// Settings are what the operator wants of a node. All folders are the node's
// own paths; Root is where the agent sees the node's file system.
type Settings struct {
	Root string
	Mode Mode

	NetDir   string   // where the runtime looks for lists
	BinDirs  []string // where it looks for plugins
	StateDir string   // survives a boot: credentials, what we must remember
	RunDir   string   // where the agent hears the plugin, and credentials go if the disk is full

	Binary string // the plugin that the agent brings, in its own file system
	Entry  Entry

	Credentials CredentialSettings
	Owner       string // the release that this agent belongs to
}

// CredentialSettings are what the plugin reads pods with.
type CredentialSettings struct {
	kube.TokenSpec
	Server string // URL of the API server, as the node reaches it
	CAFile string // in the agent's own file system
}

// at is where the agent sees a path of the node.
func (s Settings) at(path string) string { return filepath.Join(s.Root, path) }
