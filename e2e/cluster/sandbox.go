// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
)

// Sandbox is the sandbox of a running pod.
type Sandbox struct {
	cri.Sandbox
	node *Node
}

// CRI connects to the node's runtime.
func (n *Node) CRI(ctx context.Context) (internalapi.RuntimeService, error) {
	service, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + n.Socket()).WithConnectionTimeout(Timeout).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the runtime of %s: %w", n.Name, err)
	}
	return service, nil
}

// Sandboxes lists the sandboxes of the node's running pods. It repeats a listing that
// fails, or lacks the network namespace of a sandbox.
func (n *Node) Sandboxes(ctx context.Context) (sandboxes []Sandbox, err error) {
	for deadline := time.Now().Add(Timeout); ; time.Sleep(100 * time.Millisecond) {
		sandboxes, err = n.list(ctx)
		for _, found := range sandboxes {
			err = errors.Join(err, found.NetworkError)
		}
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return sandboxes, err
		}
	}
}

// Sandbox finds the sandbox of a running pod, and its network namespace. It fails while the
// runtime does not list it.
func (n *Node) Sandbox(ctx context.Context, namespace, pod string) (Sandbox, error) {
	list, err := n.list(ctx)
	for _, found := range list {
		if found.Namespace == namespace && found.Name == pod {
			return found, found.NetworkError
		}
	}
	return Sandbox{}, errors.Join(fmt.Errorf("no sandbox of %s/%s on %s", namespace, pod, n.Name), err)
}

func (n *Node) list(ctx context.Context) (sandboxes []Sandbox, err error) {
	client, err := cri.New(n.Socket())
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	list, err := cri.NewLocator(client).Sandboxes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes of %s: %w", n.Name, err)
	}
	for _, found := range list {
		sandboxes = append(sandboxes, Sandbox{found, n})
	}
	return sandboxes, nil
}

// Stop stops a sandbox without the kubelet.
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

// Path returns the host's path of the pod's network namespace.
func (s Sandbox) Path() string { return s.node.Path(s.NetNS) }

// Host returns the pod's network namespace.
func (s Sandbox) Host() (*lab.Host, error) {
	netns, err := ns.GetNS(s.Path())
	if err != nil {
		return nil, fmt.Errorf("opening the network of %s/%s: %w", s.Namespace, s.Name, err)
	}
	return &lab.Host{NetNS: netns}, nil
}
