// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"github.com/capture-cni/capture-cni/install/cri"
)

// runtimeConfig is where a runtime looks, as its own files say it.
type runtimeConfig struct {
	confDir    string
	binDirs    []string
	maxConfNum *int // nil where nothing is said
}

// refuseBeside refuses a list of our own where the runtime would load the
// primary's beside it.
func (c runtimeConfig) refuseBeside(mode Mode, source string) error {
	if mode == Owned && c.maxConfNum != nil && *c.maxConfNum != 1 {
		return fmt.Errorf("%s says max_conf_num = %d: in mode owned, the primary's list would be loaded beside ours", source, *c.maxConfNum)
	}
	return nil
}

// whereItLooks asks the runtime, else its files. source is "" where neither says.
func whereItLooks(ctx context.Context, settings Settings, runtime *cri.Client) (looks runtimeConfig, source string) {
	if runtime != nil {
		if loaded, err := runtime.CNIConfig(ctx); err == nil {
			return runtimeConfig{loaded.PluginConfDir, loaded.PluginDirs, &loaded.PluginMaxConfNum}, "the runtime itself"
		}
		if isCRIO(ctx, runtime) { // a node may have containerd's files all the same
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

// containerdPlugins are the names that the part has had; the newest counts.
var containerdPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// readRuntimeConfig reads containerd's files, or CRI-O's. source is "" where
// the node has neither.
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

func cleaned(paths []string) []string {
	clean := make([]string, len(paths))
	for i, path := range paths {
		clean[i] = filepath.Clean(path)
	}
	return clean
}

// readCRIO reads the file and then all in the folder beside it, where the last
// one wins.
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
		content, err := os.ReadFile(path)
		if err != nil || toml.Unmarshal(content, &file) != nil {
			continue
		}
		if network := file.Crio.Network; network.Dir != "" || len(network.PluginDirs) > 0 {
			source = path
			if network.Dir != "" {
				found.confDir = filepath.Clean(network.Dir)
			}
			if len(network.PluginDirs) > 0 {
				found.binDirs = cleaned(network.PluginDirs)
			}
		}
	}
	return found, source
}
