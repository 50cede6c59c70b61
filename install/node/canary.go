// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// canaryTimeout is more than the plugin gives itself.
const canaryTimeout = 3 * time.Minute

// Canary calls the installed plugin as the runtime would, with its entry and
// credentials, for a pod that it has to look up. The pod must be outside the
// mesh: the plugin then reads it and touches no namespace, which needs no
// capability. kernel has it also apply rules to a scratch namespace, which does.
func (n *Node) Canary(ctx context.Context, pod record.PodRef, kernel bool) error {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	conf, err := n.canaryConf()
	if err != nil {
		return err
	}
	for _, folder := range n.settings.BinDirs {
		plugin := n.settings.at(folder) + "/" + binaryName
		_, err := callPlugin(ctx, plugin, conf, "CNI_COMMAND=ADD", "CNI_CONTAINERID=canary", "CNI_IFNAME=eth0", "CNI_PATH="+folder,
			"CNI_NETNS=/run/netns/capture-cni-canary", // is not there, and need not be
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", pod.Namespace, pod.Name, pod.UID))
		if err == nil && kernel {
			_, err = callPlugin(ctx, plugin, conf, "CNI_COMMAND=STATUS", "CNI_PATH="+folder)
		}
		if err != nil {
			return fmt.Errorf("canary: the plugin in %s, called as by the runtime: %w", folder, err)
		}
	}
	return nil
}

// canaryConf is the entry as the runtime would pass it on, but for three keys:
// the agent's own namespace may be excluded, STATUS says nothing unless it is
// strict, and what becomes of a canary is not to be counted as a pod's fate.
func (n *Node) canaryConf() ([]byte, error) {
	kubeconfig, err := n.credentials.fault()
	if err != nil {
		return nil, err
	}
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(n.settings.Entry.Text(kubeconfig), &conf); err != nil {
		return nil, fmt.Errorf("reading the entry: %w", err)
	}
	delete(conf, "excludeNamespaces")
	for key, value := range map[string]string{"name": "canary", "cniVersion": "1.1.0", "status": "strict", "agentSocket": ""} {
		conf[key] = json.RawMessage(`"` + value + `"`)
	}
	return json.Marshal(conf)
}

// Ready reports what is wrong with the node.
func (k *Keeper) Ready(ctx context.Context) error {
	if report := k.Look(ctx); !report.Good() {
		return errors.New(report.String())
	}
	return nil
}

// Accepts reports why pods should not start yet: what is wrong with the node, or what
// the canary found. pod is as Canary wants it.
func (k *Keeper) Accepts(ctx context.Context, pod record.PodRef, kernel bool) error {
	if err := k.Ready(ctx); err != nil {
		return err
	}
	return k.node.Canary(ctx, pod, kernel)
}

// Tainted sets the metric that shows whether the taint keeps pods off the node.
func (k *Keeper) Tainted(tainted bool) { k.metrics.taint.Set(boolean(tainted)) }
