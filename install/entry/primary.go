// SPDX-License-Identifier: Apache-2.0

package entry

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
	File string
	text []byte
	List *conflist.List
	conf bool // a plain configuration, of which list was made
}

// OwnedName sorts before the files of all known installers.
const OwnedName = "00-capture-cni.conflist"

// originalSuffix is the suffix of a plain configuration that the agent replaced by a
// list. No runtime loads a file with it.
const originalSuffix = ".capture-cni-original"

// FindPrimary returns the first list in libcni's order. If that is incomplete, its owner
// is writing it: no other file is used instead.
func FindPrimary(net *host.Dir) (primary, error) {
	names, err := net.Names()
	if err != nil {
		return primary{}, err
	}
	for _, name := range names {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) || name == OwnedName {
			continue
		}
		text, err := net.Read(name)
		if err != nil {
			return primary{}, err
		}
		found, err := readPrimary(name, text)
		if err != nil {
			return primary{}, Waiting(fmt.Sprintf("%s in %s is not complete: %v", name, net.Path(), err))
		}
		if plugins := found.List.Plugins; len(plugins) == 1 && plugins[0].Type == "loopback" {
			continue
		}
		return found, found.checkVersion()
	}
	return primary{}, Waiting("no network configuration in " + net.Path() + ": the interface plugin has not been installed yet")
}

func readPrimary(name string, text []byte) (_ primary, err error) {
	p := primary{File: name, text: text, conf: filepath.Ext(name) != ".conflist"}
	if p.conf {
		if text, err = conflist.FromConf(text); err != nil {
			return p, err
		}
	}
	p.List, err = conflist.Parse(text)
	return p, err
}

// checkVersion refuses lists in which the entry would break every pod: versions without
// chained plugins, or newer ones than the plugin supports.
func (p primary) checkVersion() error {
	if p.List.CNIVersion == "" {
		return fmt.Errorf("%s has no cniVersion, which means 0.1.0 without chained plugins: set 0.3.0 or newer", p.File)
	}
	if !slices.Contains(version.VersionsStartingFrom("0.3.0").SupportedVersions(), p.List.CNIVersion) {
		return fmt.Errorf("%s has cniVersion %s, which the plugin does not support: expected 0.3.0 to 1.1.0", p.File, conflist.Shown(p.List.CNIVersion))
	}
	if p.List.Others() == 0 {
		return conflist.ErrNoInterfacePlugin
	}
	return nil
}

// Owner returns the type of the list's first plugin, as a hint at who writes it.
func (p primary) Owner() string {
	for _, plugin := range p.List.Plugins {
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
