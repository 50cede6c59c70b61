// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// runtime is as much of one as the guard asks. It runs a single pod.
type runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	pod  *corev1.Pod
	host *lab.Host
}

// serve answers at a socket for as long as this process runs.
func (r runtime) serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	return nil
}

func (r runtime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
		Id: r.pod.Name, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: r.pod.Annotations,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: r.pod.Namespace, Name: r.pod.Name, Uid: string(r.pod.UID)},
	}}}, nil
}

func (r runtime) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		Info:   map[string]string{"info": fmt.Sprintf(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":%q}]}}}`, r.host.Path())},
	}, nil
}

func (runtime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}
