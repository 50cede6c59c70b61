// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
)

// criStub is as much of a runtime as the guard asks.
type criStub struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	items []*runtimeapi.PodSandbox
	netns map[string]string
}

func (c criStub) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "stub", RuntimeVersion: "v1", RuntimeApiVersion: "v1"}, nil
}

func (c criStub) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}, nil
}

func (c criStub) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: c.items}, nil
}

func (c criStub) PodSandboxStatus(_ context.Context, asked *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Id: asked.PodSandboxId, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 1,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: asked.PodSandboxId, Uid: "uid"},
		},
		Info: map[string]string{"info": fmt.Sprintf(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":%q}]}}}`, c.netns[asked.PodSandboxId])},
	}, nil
}

func (c criStub) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

// newCRIStub returns a runtime that runs these pods.
func newCRIStub(pods ...*pod) criStub {
	c := criStub{netns: map[string]string{}}
	for _, p := range pods {
		c.add(p.sandbox)
	}
	return c
}

// add adds a sandbox to the listing.
func (c *criStub) add(s cri.Sandbox) {
	c.netns[s.ID] = s.NetNS
	c.items = append(c.items, &runtimeapi.PodSandbox{
		Id: s.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: s.Annotations, Labels: s.Labels,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: s.Namespace, Name: s.Name, Uid: s.UID},
	})
}

// serveCRI serves a runtime at a socket in a directory.
func serveCRI(t *testing.T, dir string, stub runtimeapi.RuntimeServiceServer) (socket string) {
	t.Helper()
	socket = filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, stub)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	return socket
}
