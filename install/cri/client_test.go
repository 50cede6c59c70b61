// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

// server is a runtime that has one sandbox.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	annotation string
}

func (server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.1.0"}, nil
}

func (s server) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "4ed1", Annotations: map[string]string{"a": s.annotation}}}}, nil
}

// serve answers at a socket until stop is called, which removes it.
func serve(t *testing.T, socket string, s runtimeapi.RuntimeServiceServer) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	runtime := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(runtime, s)
	go func() { _ = runtime.Serve(listener) }() // until Stop
	t.Cleanup(runtime.Stop)
	return runtime.Stop
}

func newClient(t *testing.T, socket string) *Client {
	t.Helper()
	client, err := New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestConnectsAgain has one client of a runtime that starts late, and restarts.
func TestConnectsAgain(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	client := newClient(t, socket)
	for range 2 {
		if _, err := client.Version(t.Context()); !errors.Is(err, ErrNoSocket) || !strings.Contains(err.Error(), socket) {
			t.Errorf("without a runtime: %v", err)
		}
		stop := serve(t, socket, server{})
		deadline := time.Now().Add(time.Minute)
		version, err := client.Version(t.Context())
		for err != nil && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			version, err = client.Version(t.Context())
		}
		if err != nil || client.Socket() != socket || version != (report.Runtime{Name: "containerd", Version: "2.1.0"}) {
			t.Fatalf("with a runtime: %v, %v", version, err)
		}
		stop()
	}
}

// TestUnusableSocket refuses a path that is no address, and does without it if there are others.
func TestUnusableSocket(t *testing.T) {
	t.Parallel()
	bad, good := filepath.Join(t.TempDir(), "%zz"), filepath.Join(t.TempDir(), "s")
	if client, err := New(bad); client != nil || err == nil || !strings.HasPrefix(err.Error(), "making a client of the CRI socket "+bad+": ") {
		t.Errorf("%v, %v", client, err)
	}
	lab.Check(t, os.WriteFile(bad, nil, 0o600))
	client, err := New(bad, good)
	lab.Check(t, err)
	if _, err := client.Version(t.Context()); err == nil || !strings.Contains(err.Error(), bad+" does not answer as a container runtime: making a client") {
		t.Errorf("without a runtime: %v", err)
	}
	serve(t, good, server{})
	if _, err := client.Version(t.Context()); err != nil || client.Socket() != good {
		t.Errorf("%v at %q", err, client.Socket())
	}
	lab.Check(t, client.Close())
}

// TestLargeList takes a list as large as the kubelet does, and none larger.
func TestLargeList(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{maxMessage - 1<<10: true, maxMessage: false} {
		socket := filepath.Join(t.TempDir(), "s")
		serve(t, socket, server{annotation: strings.Repeat("a", size)})
		sandboxes, err := newClient(t, socket).Sandboxes(t.Context())
		if (err == nil) != want || want && (len(sandboxes) != 1 || len(sandboxes[0].Annotations["a"]) != size) {
			t.Errorf("%d bytes: %d sandboxes, %v", size, len(sandboxes), err)
		}
	}
}
