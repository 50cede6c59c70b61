// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// Network is a conflist as a runtime has loaded it.
type Network struct {
	Name    string
	Plugins []string
}

// LoadedNetwork returns which conflist a node's runtime uses for new pods.
func LoadedNetwork(ctx context.Context, node *cluster.Node) (loaded Network, err error) {
	if node.Runtime == cluster.CRIO {
		return usedNetwork(ctx, node)
	}
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

// namedNetwork finds the network in CRI-O's error about a sandbox.
var namedNetwork = regexp.MustCompile(`to CNI network "([^"]+)"`)

// usedNetwork returns what CRI-O has used for a sandbox. Multus fails for one without a pod:
// then the error has its name.
func usedNetwork(ctx context.Context, node *cluster.Node) (used Network, err error) {
	list, err := node.UsedList(ctx)
	if err != nil {
		if found := namedNetwork.FindStringSubmatch(err.Error()); found != nil {
			return Network{Name: found[1]}, nil
		}
		return used, err
	}
	var config struct {
		Name    string
		Plugins []struct{ Type string }
	}
	if err := json.Unmarshal(list, &config); err != nil {
		return used, err
	}
	used.Name = config.Name
	for _, plugin := range config.Plugins {
		used.Plugins = append(used.Plugins, plugin.Type)
	}
	return used, nil
}
