// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// primary is the list that the runtime would load without the agent.
type primary struct {
	file string
	text []byte
	list *conflist.List
	conf bool // a plain configuration, of which list was made
}

// ownedName sorts before the files of all known installers.
const ownedName = "00-capture-cni.conflist"

// originalSuffix is the suffix of a plain configuration that the agent replaced by a
// list. No runtime loads a file with it.
const originalSuffix = ".capture-cni-original"

// findPrimary returns the first list in libcni's order. If that is incomplete, its owner
// is writing it: no other file is used instead.
func findPrimary(net *host.Dir) (primary, error) {
	names, err := net.Names()
	if err != nil {
		return primary{}, err
	}
	for _, name := range names {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) || name == ownedName {
			continue
		}
		text, err := net.Read(name)
		if err != nil {
			return primary{}, err
		}
		found, err := readPrimary(name, text)
		if err != nil {
			return primary{}, waiting(fmt.Sprintf("%s in %s is not complete: %v", name, net.Path(), err))
		}
		if found.isLoopback() {
			continue
		}
		return found, found.checkVersion()
	}
	return primary{}, waiting("no network configuration in " + net.Path() + ": the interface plugin has not been installed yet")
}

func readPrimary(name string, text []byte) (primary, error) {
	if filepath.Ext(name) == ".conflist" {
		list, err := conflist.Parse(text)
		return primary{file: name, text: text, list: list}, err
	}
	made, err := conflist.FromConf(text)
	if err != nil {
		return primary{}, err
	}
	list, err := conflist.Parse(made)
	return primary{file: name, text: text, list: list, conf: true}, err
}

func (p primary) isLoopback() bool {
	return len(p.list.Plugins) == 1 && p.list.Plugins[0].Type == "loopback"
}

// checkVersion refuses lists in which the entry would break every pod: versions without
// chained plugins, or newer ones than the plugin supports.
func (p primary) checkVersion() error {
	if p.list.CNIVersion == "" {
		return fmt.Errorf("%s has no cniVersion, which means 0.1.0 without chained plugins: set 0.3.0 or newer", p.file)
	}
	if !slices.Contains(version.VersionsStartingFrom("0.3.0").SupportedVersions(), p.list.CNIVersion) {
		return fmt.Errorf("%s has cniVersion %s, which the plugin does not support: expected 0.3.0 to 1.1.0", p.file, conflist.Shown(p.list.CNIVersion))
	}
	if p.list.Others() == 0 {
		return conflist.ErrNoInterfacePlugin
	}
	return nil
}

// owner returns the type of the list's first plugin, as a hint at who writes it.
func (p primary) owner() string {
	for _, plugin := range p.list.Plugins {
		if plugin.Type != conflist.PluginType {
			return conflist.Shown(plugin.Type)
		}
	}
	return "unknown"
}

// listName returns the name of the list that replaces a plain configuration.
func listName(conf string) string {
	return strings.TrimSuffix(conf, filepath.Ext(conf)) + ".conflist"
}
