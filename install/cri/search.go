// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
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

// searchTimeout limits a search to half of statusTimeout, so that the request that needed the search
// has at least the other half.
const searchTimeout = statusTimeout / 2

// KnownSockets returns the CRI sockets of containerd, CRI-O, k3s and RKE2, MicroK8s and k0s.
func KnownSockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock", "/run/k0s/containerd.sock",
	}
}

// search is a connection to the kubelet's runtime, which answers at one of several sockets. The first
// request, and each request after the connection was lost, searches for this socket.
type search struct {
	sockets []string

	searching chan struct{} // has an element while a request searches
	last      string        // the socket that was found last; only the searching request may use it

	mu    sync.Mutex
	found *grpc.ClientConn // nil before the first search, and after the connection was lost
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
func (s *search) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	conn, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, options...)
}

// Close closes the connection.
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

// lose closes a lost connection, so that the next request searches again, unless another request has
// already found a new connection.
func (s *search) lose(conn *grpc.ClientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == conn {
		s.found = nil
		_ = conn.Close()
	}
}

// find returns the connection to the runtime. If there is none, it searches for the runtime. Only one
// request at a time searches.
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

// candidate is the result of a request at one socket.
type candidate struct {
	socket string
	conn   *grpc.ClientConn // nil after an error
	pods   bool             // the runtime has sandboxes, running or stopped
	err    error
}

// choose connects to the kubelet's runtime, which it takes to be the only one with pods. If no runtime
// has pods, choose takes the runtime that it chose last or, if it has chosen none yet, one that answers
// while no other socket can belong to the kubelet's runtime. So while the kubelet's runtime restarts, it
// does not choose another, idle runtime on the node.
func (s *search) choose(ctx context.Context) (*grpc.ClientConn, error) {
	candidates := askAll(ctx, distinct(s.sockets))
	var running, idle, silent []candidate
	for _, c := range candidates {
		switch {
		case c.pods:
			running = append(running, c)
		case c.err == nil:
			idle = append(idle, c)
		case status.Code(c.err) != codes.Unimplemented: // containerd without its CRI plugin can't be the kubelet's runtime
			silent = append(silent, c)
		}
	}
	var chosen candidate
	before := slices.IndexFunc(idle, func(c candidate) bool { return c.socket == s.last })
	switch {
	case len(running) == 1:
		chosen = running[0]
	case len(running) == 0 && before >= 0:
		chosen = idle[before]
	case len(running) == 0 && len(idle) == 1 && len(silent) == 0 && s.last == "":
		chosen = idle[0]
	}
	for _, c := range candidates {
		if c.conn != nil && c.conn != chosen.conn {
			_ = c.conn.Close()
		}
	}
	if chosen.conn == nil {
		return nil, undecided(candidates)
	}
	s.last = chosen.socket
	return chosen.conn, nil
}

// undecided returns an error that describes the answer at each socket.
func undecided(candidates []candidate) error {
	answers := make([]string, len(candidates))
	for i, c := range candidates {
		answers[i] = c.socket + " answers, and has no pods"
		if c.pods {
			answers[i] = c.socket + " answers, and has pods"
		}
		if c.err != nil {
			answers[i] = c.socket + " does not answer as a container runtime: " + c.err.Error()
		}
	}
	return fmt.Errorf("can't tell which runtime is the kubelet's (%s): check the runtime, or set --cri-socket (paths.criSocket)",
		strings.Join(answers, "; "))
}

// distinct returns the sockets that exist. Of several paths to the same file, it returns only the
// first.
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

// askAll sends requests to all sockets at the same time, so that a runtime that hangs leaves the others
// the time to answer.
func askAll(ctx context.Context, sockets []string) []candidate {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	candidates := make([]candidate, len(sockets))
	var asking sync.WaitGroup
	for i, socket := range sockets {
		asking.Go(func() { candidates[i] = ask(ctx, socket) })
	}
	asking.Wait()
	return candidates
}

// ask connects to a socket, and asks whether a runtime there has pods.
func ask(ctx context.Context, socket string) candidate {
	conn, err := dial(socket)
	if err != nil {
		return candidate{socket: socket, err: err}
	}
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		_ = conn.Close()
		return candidate{socket: socket, err: err}
	}
	return candidate{socket: socket, conn: conn, pods: len(list.Items) > 0}
}
