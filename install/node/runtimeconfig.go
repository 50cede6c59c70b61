// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
)

// runtimeConfig is the runtime's configuration of CNI.
type runtimeConfig struct {
	confDir    string
	binDirs    []string
	maxConfNum *int // nil if not set
}

// checkMaxConfNum refuses mode owned if the runtime would load the primary list next to
// the agent's.
func (c runtimeConfig) checkMaxConfNum(mode Mode, source string) error {
	if mode == Owned && c.maxConfNum != nil && *c.maxConfNum != 1 {
		return fmt.Errorf("max_conf_num = %[2]d in %[1]s: in mode owned, the runtime would load the primary list next to the agent's", source, *c.maxConfNum)
	}
	return nil
}

// runtimeConfigOf returns what the runtime reports, else what its files contain. source
// is "" if neither is available.
func runtimeConfigOf(ctx context.Context, settings Settings, runtime *cri.Client) (found runtimeConfig, source string) {
	if runtime != nil {
		if loaded, err := runtime.CNIConfig(ctx); err == nil {
			return runtimeConfig{loaded.PluginConfDir, loaded.PluginDirs, &loaded.PluginMaxConfNum}, "the runtime's status"
		}
		if version, err := runtime.Version(ctx); err == nil && version.IsCRIO() { // the node may have containerd's files as well
			return readCRIO(settings)
		}
	}
	return readRuntimeConfig(settings)
}

// containerdCNI is the part of containerd's configuration that we read.
type containerdCNI struct {
	BinDir     string   `toml:"bin_dir"`
	BinDirs    []string `toml:"bin_dirs"`
	ConfDir    string   `toml:"conf_dir"`
	MaxConfNum *int     `toml:"max_conf_num"`
}

// containerdPlugins are the names of the CRI plugin, the newest first.
var containerdPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// readRuntimeConfig reads containerd's files, else CRI-O's. source is "" if the node
// has neither.
func readRuntimeConfig(settings Settings) (found runtimeConfig, source string) {
	for _, path := range []string{
		"/etc/containerd/config.toml",
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		"/var/snap/microk8s/current/args/containerd.toml",
	} {
		var file struct {
			Plugins map[string]struct{ CNI containerdCNI }
		}
		if _, err := toml.DecodeFile(settings.at(path), &file); err != nil {
			continue
		}
		for _, name := range containerdPlugins {
			if cni := file.Plugins[name].CNI; cni.ConfDir != "" || cni.BinDir != "" || len(cni.BinDirs) > 0 {
				found = runtimeConfig{cni.ConfDir, cni.BinDirs, cni.MaxConfNum}
				if cni.BinDir != "" {
					found.binDirs = append(found.binDirs, cni.BinDir)
				}
				return found, path
			}
		}
	}
	return readCRIO(settings)
}

// readCRIO reads CRI-O's file and then its drop-ins, where the last one wins.
func readCRIO(settings Settings) (found runtimeConfig, source string) {
	files := []string{settings.at("/etc/crio/crio.conf")}
	_ = filepath.WalkDir(settings.at("/etc/crio/crio.conf.d"), func(path string, _ fs.DirEntry, _ error) error {
		files = append(files, path)
		return nil
	})
	for _, path := range files {
		var file struct {
			Crio struct {
				Network struct {
					Dir        string   `toml:"network_dir"`
					PluginDirs []string `toml:"plugin_dirs"`
				}
			}
		}
		content, err := host.ReadFile(path)
		if err != nil || toml.Unmarshal(content, &file) != nil {
			continue
		}
		if network := file.Crio.Network; network.Dir != "" || len(network.PluginDirs) > 0 {
			source = path
			if network.Dir != "" {
				found.confDir = filepath.Clean(network.Dir)
			}
			for i, dir := range network.PluginDirs {
				network.PluginDirs[i] = filepath.Clean(dir)
				found.binDirs = network.PluginDirs
			}
		}
	}
	return found, source
}
