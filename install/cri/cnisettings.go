// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"github.com/capture-cni/capture-cni/install/host"
)

// CNISettings is the runtime's configuration of CNI. The keys in the tags are containerd's.
type CNISettings struct {
	ConfDir    string   `toml:"conf_dir"`
	BinDirs    []string `toml:"bin_dirs"`
	MaxConfNum *int     `toml:"max_conf_num"` // only containerd has it; nil if not set
	Network    string   `toml:"-"`            // the only network that CRI-O uses; "" if not set
}

// containerdPlugins are the names of containerd's CRI plugin, the newest first.
var containerdPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// ReadCNISettings returns the CNI settings of the node's runtime. It asks the runtime first: containerd
// for its status, and CRI-O for its configuration. If the runtime returns none, it reads containerd's
// or CRI-O's files below root. source names the origin of the settings, and is "" if there are none.
func ReadCNISettings(ctx context.Context, root string, runtime *Client) (found CNISettings, source string) {
	if runtime != nil {
		if loaded, err := runtime.CNIConfig(ctx); err == nil {
			return CNISettings{
				ConfDir: loaded.PluginConfDir, BinDirs: loaded.PluginDirs, MaxConfNum: &loaded.PluginMaxConfNum,
			}, "the runtime's status"
		}
		if version, err := runtime.Version(ctx); err == nil && version.IsCRIO() { // the node may also have containerd's files
			if text, err := runtime.CRIOConfig(ctx); err == nil && found.addCRIO(text) {
				return found, "CRI-O's configuration"
			}
			return readCRIO(root)
		}
	}
	for _, path := range []string{
		"/etc/containerd/config.toml",
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		"/var/snap/microk8s/current/args/containerd.toml",
	} {
		var file struct {
			Plugins map[string]struct {
				CNI struct {
					CNISettings
					BinDir string `toml:"bin_dir"`
				}
			}
		}
		if _, err := toml.DecodeFile(filepath.Join(root, path), &file); err != nil {
			continue
		}
		for _, name := range containerdPlugins {
			if cni := file.Plugins[name].CNI; cni.ConfDir != "" || cni.BinDir != "" || len(cni.BinDirs) > 0 {
				if cni.BinDir != "" {
					cni.BinDirs = append(cni.BinDirs, cni.BinDir)
				}
				return cni.CNISettings, path
			}
		}
	}
	return readCRIO(root)
}

// readCRIO reads the settings in CRI-O's file and its drop-ins. A later file overrides an earlier one.
func readCRIO(root string) (found CNISettings, source string) {
	files := []string{filepath.Join(root, "/etc/crio/crio.conf")}
	_ = filepath.WalkDir(filepath.Join(root, "/etc/crio/crio.conf.d"), func(path string, _ fs.DirEntry, _ error) error {
		files = append(files, path)
		return nil
	})
	for _, path := range files {
		if content, err := host.ReadFile(path); err == nil && found.addCRIO(content) {
			source = path
		}
	}
	return found, source
}

// addCRIO adds the settings in a file of CRI-O, and reports whether the file sets the directory of
// networks or those of plugins.
func (c *CNISettings) addCRIO(content []byte) bool {
	var file struct {
		Crio struct {
			Network struct {
				Default    string   `toml:"cni_default_network"`
				Dir        string   `toml:"network_dir"`
				PluginDirs []string `toml:"plugin_dirs"`
			}
		}
	}
	if toml.Unmarshal(content, &file) != nil {
		return false
	}
	network := file.Crio.Network
	c.Network = cmp.Or(network.Default, c.Network)
	if network.Dir != "" {
		c.ConfDir = filepath.Clean(network.Dir)
	}
	for i, dir := range network.PluginDirs {
		network.PluginDirs[i] = filepath.Clean(dir)
		c.BinDirs = network.PluginDirs
	}
	return network.Dir != "" || len(network.PluginDirs) > 0
}
