// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// Network is a conflist as a runtime has loaded it.
type Network struct {
	Name    string
	Plugins []string
}

// LoadedNetwork asks a node's runtime which conflist it uses for new pods.
func LoadedNetwork(ctx context.Context, node *cluster.Node) (loaded Network, err error) {
	service, err := node.CRI(ctx)
	if err != nil {
		return loaded, err
	}
	defer func() { _ = service.Close(context.WithoutCancel(ctx)) }()
	status, err := service.Status(ctx, true)
	if err != nil {
		return loaded, err
	}
	var info struct {
		Networks []struct {
			Config struct {
				Name    string
				Plugins []struct{ Network struct{ Type string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(status.Info["cniconfig"]), &info); err != nil {
		return loaded, err
	}
	if len(info.Networks) < 2 { // the loopback's is the first
		return loaded, fmt.Errorf("%s has loaded no network", node.Name)
	}
	config := info.Networks[len(info.Networks)-1].Config
	loaded.Name = config.Name
	for _, plugin := range config.Plugins {
		loaded.Plugins = append(loaded.Plugins, plugin.Network.Type)
	}
	return loaded, nil
}
