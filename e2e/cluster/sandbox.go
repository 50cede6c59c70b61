// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-client/pkg"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Sandbox is a pod as its node's runtime knows it.
type Sandbox struct {
	ID, Namespace, Name, UID string
	Ready                    bool
	NetNS                    string // as the node sees it; empty for the node's own

	node *Node
}

// CRI connects to the node's runtime.
func (n *Node) CRI(ctx context.Context) (internalapi.RuntimeService, error) {
	socket := n.Path("/run/containerd/containerd.sock")
	service, err := cri.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + socket).WithConnectionTimeout(10 * time.Second).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the runtime of %s: %w", n.Name, err)
	}
	return service, nil
}

// Sandboxes lists the node's pods, those that have ended too.
func (n *Node) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	service, err := n.CRI(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = service.Close(context.WithoutCancel(ctx)) }()
	list, err := service.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes of %s: %w", n.Name, err)
	}
	var sandboxes []Sandbox
	for _, item := range list {
		s := Sandbox{
			ID: item.Id, Namespace: item.Metadata.Namespace, Name: item.Metadata.Name, UID: item.Metadata.Uid,
			Ready: item.State == runtimeapi.PodSandboxState_SANDBOX_READY, node: n,
		}
		status, err := service.PodSandboxStatus(ctx, item.Id, true)
		if err != nil {
			continue // it went meanwhile
		}
		if s.NetNS, err = netnsOf(status.Info["info"]); err != nil {
			return nil, err
		}
		sandboxes = append(sandboxes, s)
	}
	return sandboxes, nil
}

// netnsOf reads containerd's verbose information.
func netnsOf(info string) (string, error) {
	var verbose struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(info), &verbose); err != nil {
		return "", fmt.Errorf("reading a sandbox's information: %w", err)
	}
	for _, namespace := range verbose.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			return namespace.Path, nil
		}
	}
	return "", nil
}

// Stop ends a sandbox behind the kubelet's back.
func (s Sandbox) Stop(ctx context.Context) error {
	service, err := s.node.CRI(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = service.Close(context.WithoutCancel(ctx)) }()
	if err := service.StopPodSandbox(ctx, s.ID); err != nil {
		return fmt.Errorf("stopping the sandbox of %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// Host is the pod's network.
func (s Sandbox) Host() (*lab.Host, error) {
	netns, err := ns.GetNS(s.node.Path(s.NetNS))
	if err != nil {
		return nil, fmt.Errorf("opening the network of %s/%s: %w", s.Namespace, s.Name, err)
	}
	return &lab.Host{NetNS: netns}, nil
}
