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
// lacks a sandbox's place.
func (n *Node) Sandboxes(ctx context.Context) (sandboxes []Sandbox, err error) {
	client, err := cri.New(n.Socket())
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	runtime := cri.NewLocator(client)
	list, err := located(ctx, runtime)
	for deadline := time.Now().Add(Timeout); err != nil && ctx.Err() == nil && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		list, err = located(ctx, runtime)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes of %s: %w", n.Name, err)
	}
	for _, found := range list {
		sandboxes = append(sandboxes, Sandbox{found, n})
	}
	return sandboxes, nil
}

// located lists sandboxes, and fails where the place of one is not known.
func located(ctx context.Context, runtime *cri.Locator) ([]cri.Sandbox, error) {
	list, err := runtime.Sandboxes(ctx)
	for _, sandbox := range list {
		err = errors.Join(err, sandbox.NetworkError)
	}
	return list, err
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
