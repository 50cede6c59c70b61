// SPDX-License-Identifier: Apache-2.0

package guard

import "testing"

// TestNetNS reads what runtimes tell of a sandbox with verbose set.
func TestNetNS(t *testing.T) {
	for name, test := range map[string]struct{ info, want string }{
		"containerd": {`{"pid":4711,"processStatus":"running","netNamespaceClosed":false,"image":"registry.k8s.io/pause:3.10","snapshotter":"overlayfs","runtimeHandler":"",
			"config":{"metadata":{"name":"web","uid":"6c1f8c3e","namespace":"shop"}},
			"runtimeSpec":{"ociVersion":"1.2.1","linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"network","path":"/var/run/netns/cni-6c1f8c3e"}]}}}`, "/var/run/netns/cni-6c1f8c3e"},
		"CRI-O": {`{"image":"registry.k8s.io/pause:3.10","pid":4711,
			"runtimeSpec":{"ociVersion":"1.1.0","linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/6c1f8c3e"},{"type":"ipc","path":"/var/run/ipcns/6c1f8c3e"}]}}}`, "/var/run/netns/6c1f8c3e"},
		"the node's own network": {`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"mount"}]}}}`, ""},
		"nothing told":           {`{}`, ""},
	} {
		if got, err := netnsOf(test.info); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
	if got, err := netnsOf(""); err == nil {
		t.Errorf("no information: %q", got)
	}
}
