// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// called is a runtime that says its name and no more.
type called struct {
	internalapi.RuntimeService
	name string
}

func (c called) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: c.name}, nil
}

func (called) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

// TestWhereTheRuntimeLooks goes by the files of the runtime that runs, not of
// another that the node has, too.
func TestWhereTheRuntimeLooks(t *testing.T) {
	t.Parallel()
	both := machine(t, map[string]string{
		"/etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n  conf_dir = \"/etc/cni/net.d\"\n",
		"/etc/crio/crio.conf":         "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d\"\nplugin_dirs = [\"/var/lib/cni/bin\"]\n",
	})
	for name, want := range map[string]string{"cri-o": "/etc/kubernetes/cni/net.d", "containerd": "/etc/cni/net.d"} {
		if found, source := whereItLooks(t.Context(), both, &Runtime{called{name: name}}); found.confDir != want {
			t.Errorf("%s: %s, by %s; want %s", name, found.confDir, source, want)
		}
	}
}
