// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// primary is the list that the runtime would load if we were not there.
type primary struct {
	file string
	text []byte
	list *conflist.List
	conf bool // a plain configuration, of which list was made
}

// waiting is a reason why nothing can be done yet. It passes by itself.
type waiting string

func (w waiting) Error() string { return string(w) }

// ownedName sorts before what any installer is known to write.
const ownedName = "00-capture-cni.conflist"

// originalSuffix ends the name of a plain configuration in whose place a list
// of ours came. No runtime loads a file of such a name.
const originalSuffix = ".capture-cni-original"

// findPrimary goes by libcni's order. The first file decides: where it can't be
// read yet, its writer is at work, and any other file would be the wrong one.
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
		return found, found.fit()
	}
	return primary{}, waiting("no network configuration is in " + net.Path() + " yet: the interface plugin has not been installed")
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

// fit refuses lists in which our entry would break every pod: below the
// versions that know chaining, or above those that the plugin knows.
func (p primary) fit() error {
	if p.list.CNIVersion == "" {
		return fmt.Errorf("%s has no cniVersion, which means 0.1.0: plugins can't be chained there; its owner has to set one from 0.3.0 on", p.file)
	}
	if !slices.Contains(version.VersionsStartingFrom("0.3.0").SupportedVersions(), p.list.CNIVersion) {
		return fmt.Errorf("%s has cniVersion %s, which the plugin does not know: it knows 0.3.0 to 1.1.0", p.file, conflist.Shown(p.list.CNIVersion))
	}
	if p.list.Others() == 0 {
		return conflist.ErrNoInterfacePlugin
	}
	return nil
}

// owner names who writes the list, as far as that can be told.
func (p primary) owner() string {
	for _, plugin := range p.list.Plugins {
		if plugin.Type != conflist.PluginType {
			return conflist.Shown(plugin.Type)
		}
	}
	return "unknown"
}

// isWaiting tells a state that passes from a fault.
func isWaiting(err error) bool {
	_, ok := errors.AsType[waiting](err)
	return ok
}

// listName is what a plain configuration's list is called.
func listName(conf string) string {
	return strings.TrimSuffix(conf, filepath.Ext(conf)) + ".conflist"
}
