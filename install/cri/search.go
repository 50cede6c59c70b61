// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// KnownSockets are the CRI sockets of containerd, CRI-O, k3s and RKE2, MicroK8s and k0s.
func KnownSockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock", "/run/k0s/containerd.sock",
	}
}

// search is a connection to the runtime that answers at one of several sockets. It
// searches with the first request, and again after it lost that runtime.
type search struct {
	sockets []string

	searching chan struct{} // has an element while a request searches

	mu    sync.Mutex
	found *grpc.ClientConn // nil: to be searched
}

func newSearch(sockets []string) *search {
	return &search{sockets: sockets, searching: make(chan struct{}, 1)}
}

// Invoke implements grpc.ClientConnInterface.
func (s *search) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	conn, err := s.find(ctx)
	if err != nil {
		return err
	}
	err = conn.Invoke(ctx, method, request, answer, options...)
	if status.Code(err) == codes.Unavailable {
		s.lose(conn)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (s *search) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, options...)
}

// Close ends the connection.
func (s *search) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		return nil
	}
	return s.found.Close()
}

func (s *search) current() *grpc.ClientConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// lose has the next request search again, unless another one has already.
func (s *search) lose(conn *grpc.ClientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == conn {
		s.found = nil
		_ = conn.Close()
	}
}

// find returns the connection to the runtime, which one request at a time searches.
func (s *search) find(ctx context.Context) (*grpc.ClientConn, error) {
	select {
	case s.searching <- struct{}{}:
		defer func() { <-s.searching }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if conn := s.current(); conn != nil {
		return conn, nil
	}
	conn, err := s.choose(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = conn
	return conn, nil
}

// choose connects to the socket at which a runtime answers. Of several runtimes it takes
// the one that runs pods: the others are not the kubelet's.
func (s *search) choose(ctx context.Context) (chosen *grpc.ClientConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var answering, running []*grpc.ClientConn
	var faults []error
	for _, socket := range distinct(s.sockets) {
		conn, pods, err := ask(ctx, socket)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", socket, err))
			continue
		}
		answering = append(answering, conn)
		if pods {
			running = append(running, conn)
		}
	}
	defer func() {
		for _, conn := range answering {
			if conn != chosen {
				_ = conn.Close()
			}
		}
	}()
	switch {
	case len(answering) == 0:
		return nil, fmt.Errorf("no runtime answers: %w", errors.Join(faults...))
	case len(answering) == 1:
		return answering[0], nil
	case len(running) == 1:
		return running[0], nil
	}
	targets := make([]string, len(answering))
	for i, conn := range answering {
		targets[i] = conn.Target()
	}
	return nil, fmt.Errorf("%d runtimes answer (%s), and %d of them run pods: set --cri-socket (paths.criSocket) to the kubelet's", len(answering), strings.Join(targets, ", "), len(running))
}

// distinct leaves out sockets that do not exist or are links to others.
func distinct(sockets []string) (paths []string) {
	var seen []os.FileInfo
	for _, socket := range sockets {
		info, err := os.Stat(socket)
		if err != nil || slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(other, info) }) {
			continue
		}
		seen, paths = append(seen, info), append(paths, socket)
	}
	return paths
}

// ask connects to a socket and reports whether the runtime there runs pods. It fails
// where no container runtime answers, as at the socket of a containerd without CRI.
func ask(ctx context.Context, socket string) (conn *grpc.ClientConn, pods bool, err error) {
	conn, err = dial(socket)
	if err != nil {
		return nil, false, err
	}
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	_, err = runtime.Version(ctx, &runtimeapi.VersionRequest{})
	var list *runtimeapi.ListPodSandboxResponse
	if err == nil {
		list, err = runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	}
	if err != nil {
		return nil, false, errors.Join(err, conn.Close())
	}
	return conn, len(list.Items) > 0, nil
}
