// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

const staticManifest = "/etc/kubernetes/manifests/static.json"

// writeStatic gives a node's kubelet a pod of its own. It will be called by
// the node's name, too.
func writeStatic(t *testing.T, node *cluster.Node, namespace, name string) {
	t.Helper()
	pod := server(name, "")
	pod.Namespace = namespace
	content, err := json.Marshal(pod)
	check(t, err)
	path := node.Path(staticManifest)
	t.Cleanup(func() { _ = os.Remove(path) })
	check(t, os.WriteFile(path, content, 0o600))
}

func removeStatic(t *testing.T, node *cluster.Node) {
	t.Helper()
	check(t, os.Remove(node.Path(staticManifest)))
}
