// SPDX-License-Identifier: Apache-2.0

// Package runtimeconfig reads where the container runtime looks for CNI's configuration and
// plugins.
package runtimeconfig

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/settings"
)

// Config is the runtime's configuration of CNI, with the keys of containerd.
type Config struct {
	ConfDir    string   `toml:"conf_dir"`
	BinDirs    []string `toml:"bin_dirs"`
	MaxConfNum *int     `toml:"max_conf_num"` // of containerd; nil if not set
	Network    string   `toml:"-"`            // of CRI-O, the only one that it uses; "" if not set
}

// Loader returns how the node's runtime chooses what it loads of its directory.
func Loader(ctx context.Context, s settings.Node, runtime *cri.Client) entry.Loader {
	loader := entry.Loader{Most: 1, BinDirs: s.BinDirs}
	if runtime != nil {
		loader.Runtime, _ = runtime.Version(ctx) // unknown without an answer
	}
	found, _ := Of(ctx, s.Root, runtime)
	if found.MaxConfNum != nil {
		loader.Most = *found.MaxConfNum
	}
	loader.Network = found.Network
	isMissing := func(path string) bool { return unix.Access(path, unix.F_OK) != nil }
	if s.Root == "/" && len(found.BinDirs) > 0 && !slices.ContainsFunc(found.BinDirs, isMissing) {
		loader.SeesAll, loader.BinDirs = true, found.BinDirs
	}
	loader.BinDirs = slices.Clone(loader.BinDirs) // of the settings
	for i, directory := range loader.BinDirs {
		loader.BinDirs[i] = s.At(directory)
	}
	return loader
}

// containerdPlugins are the names of the CRI plugin, the newest first.
var containerdPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// Of returns what the runtime reports, else what containerd's files contain, else those of
// CRI-O. The agent's pod sees no file of CRI-O. source is "" if none is available.
func Of(ctx context.Context, root string, runtime *cri.Client) (found Config, source string) {
	if runtime != nil {
		if loaded, err := runtime.CNIConfig(ctx); err == nil {
			return Config{ConfDir: loaded.PluginConfDir, BinDirs: loaded.PluginDirs, MaxConfNum: &loaded.PluginMaxConfNum}, "the runtime's status"
		}
		if version, err := runtime.Version(ctx); err == nil && version.IsCRIO() { // the node may have containerd's files as well
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
					Config
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
				return cni.Config, path
			}
		}
	}
	return readCRIO(root)
}

// readCRIO reads CRI-O's file and then its drop-ins, where the last one wins.
func readCRIO(root string) (found Config, source string) {
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

// addCRIO adds what a file of CRI-O sets, and reports whether that is a directory.
func (c *Config) addCRIO(content []byte) bool {
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
