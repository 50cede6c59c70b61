// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UsedList starts a sandbox and ends it, and returns the list that the runtime used for
// it, without drop-ins: CRI-O does not report what it has loaded.
func (n *Node) UsedList(ctx context.Context) (list []byte, err error) {
	service, err := n.CRI(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = service.Close(context.WithoutCancel(ctx)) }()
	id, err := service.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "probe", Namespace: "kube-system", Uid: rand.Text()}, // which istio-cni skips
		Annotations: map[string]string{"kubernetes.io/config.source": "probe"},                                 // without any, CRI-O passes none to plugins
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/" + n.cgroup(), SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			// As of the kubelet's pods: then CRI-O starts no process, which could miss the signal to stop.
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}, "")
	if err != nil {
		return nil, fmt.Errorf("starting a sandbox on %s: %w", n.Name, err)
	}
	defer func() { // the kubelet, which does not know the pod, may be faster
		err = errors.Join(err, service.StopPodSandbox(ctx, id), service.RemovePodSandbox(ctx, id))
	}()
	results, err := filepath.Glob(n.Path("/var/lib/cni/results/*-" + id + "-eth0"))
	if err != nil || len(results) != 1 {
		return nil, fmt.Errorf("%s has %d results of sandbox %s: %w", n.Name, len(results), id, err)
	}
	content, err := os.ReadFile(results[0])
	if err != nil {
		return nil, err
	}
	var result struct{ Config []byte }
	err = json.Unmarshal(content, &result)
	return result.Config, err
}
