// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// canaryTimeout limits the test calls of Canary together. It exceeds the plugin's own timeout for ADD.
const canaryTimeout = 3 * time.Minute

// Canary calls each installed plugin as the runtime does, but passes no annotations, so that the plugin
// must look up the pod. The pod must be outside the mesh, so that the plugin reads the pod but does not
// enter its network namespace, which would need capabilities.
func (n *Node) Canary(ctx context.Context, pod capture.PodRef) error {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	kubeconfig, err := n.credentialsFault()
	if err != nil {
		return err
	}
	return n.canary(ctx, kubeconfig, pod)
}

// canary calls the plugin in each directory of BinDirs, with an entry that names this kubeconfig.
func (n *Node) canary(ctx context.Context, kubeconfig string, pod capture.PodRef) error {
	conf := n.canaryConf(kubeconfig)
	for _, directory := range n.Settings.BinDirs {
		plugin := n.Settings.At(directory) + "/" + conflist.PluginType
		_, err := n.Settings.Execute.callPlugin(ctx, plugin, conf,
			"CNI_COMMAND=ADD", "CNI_CONTAINERID="+record.Canary, "CNI_IFNAME=eth0", "CNI_PATH="+directory,
			"CNI_NETNS=/run/netns/capture-cni-canary", // need not exist, because the plugin does not enter it
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", pod.Namespace, pod.Name, pod.UID))
		if err != nil {
			return fmt.Errorf("canary: calling the plugin in %s: %w [%s]", directory, err, report.AddFailed)
		}
	}
	return nil
}

// canaryConf returns the entry with a name and a version, as the plugin gets it, but without annotations,
// so that the plugin looks up the pod, and without excludeNamespaces, which may contain the agent's
// namespace.
func (n *Node) canaryConf(kubeconfig string) []byte {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(n.Settings.Entry.Text(kubeconfig), &keys) // conflist.ParseEntry has already decoded this text
	delete(keys, "excludeNamespaces")
	keys["name"], keys["cniVersion"] = json.RawMessage(`"canary"`), json.RawMessage(`"1.1.0"`)
	conf, _ := json.Marshal(keys) // the values were just decoded
	return conf
}
