// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errEnded means that the kubelet, which does not know the pod of a sandbox, ended the
// sandbox before its result was read.
var errEnded = errors.New("the sandbox has no result any more")

// UsedList starts a sandbox and ends it, and returns the list that the runtime used for
// it, without drop-ins. CRI-O does not report what it has loaded.
func (n *Node) UsedList(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	list, err := n.listOfSandbox(ctx)
	for errors.Is(err, errEnded) && ctx.Err() == nil {
		list, err = n.listOfSandbox(ctx)
	}
	return list, err
}

func (n *Node) listOfSandbox(ctx context.Context) (list []byte, err error) {
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
	defer func() {
		err = errors.Join(err, service.StopPodSandbox(ctx, id), service.RemovePodSandbox(ctx, id))
	}()
	results, err := filepath.Glob(n.Path("/var/lib/cni/results/*-" + id + "-eth0"))
	switch {
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, fmt.Errorf("%s, sandbox %s: %w", n.Name, id, errEnded)
	case len(results) > 1:
		return nil, fmt.Errorf("%s has %d results of sandbox %s", n.Name, len(results), id)
	}
	content, err := os.ReadFile(results[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s, sandbox %s: %w", n.Name, id, errEnded)
	} else if err != nil {
		return nil, err
	}
	var result struct{ Config []byte }
	err = json.Unmarshal(content, &result)
	return result.Config, err
}
