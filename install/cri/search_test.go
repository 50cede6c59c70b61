// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namedRuntime is a runtime with a name and a number of sandboxes.
type namedRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name string
	pods int
}

func (r namedRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: r.name, RuntimeVersion: "2.1.0"}, nil
}

func (r namedRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: make([]*runtimeapi.PodSandbox, r.pods)}, nil
}

// withoutCRI serves a socket where no container runtime answers, as that of a containerd
// whose CRI plugin is disabled.
func withoutCRI(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	empty := grpc.NewServer()
	go func() { _ = empty.Serve(listener) }() // until Stop
	t.Cleanup(empty.Stop)
}

// TestSearch has a client of several sockets find the runtime of the kubelet.
func TestSearch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		serve func(t *testing.T, at func(name string) string)
		want  string // the socket
		fails string // a part of the error
	}{
		"CRI-O alone": {func(t *testing.T, at func(string) string) {
			serve(t, at("crio"), namedRuntime{name: "cri-o"})
		}, "crio", ""},
		"CRI-O, and a containerd without CRI": {func(t *testing.T, at func(string) string) {
			withoutCRI(t, at("containerd"))
			serve(t, at("crio"), namedRuntime{name: "cri-o"})
		}, "crio", ""},
		"CRI-O, and a containerd that left its socket": {func(t *testing.T, at func(string) string) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("containerd")})
			if err != nil {
				t.Fatal(err)
			}
			listener.SetUnlinkOnClose(false)
			_ = listener.Close()
			serve(t, at("crio"), namedRuntime{name: "cri-o", pods: 1})
		}, "crio", ""},
		"CRI-O with pods, and a containerd that hangs": {func(t *testing.T, at func(string) string) {
			hanging(t, at("containerd"))
			serve(t, at("crio"), namedRuntime{name: "cri-o", pods: 1})
		}, "crio", ""},
		"CRI-O without pods, and a containerd that hangs": {func(t *testing.T, at func(string) string) {
			hanging(t, at("containerd"))
			serve(t, at("crio"), namedRuntime{name: "cri-o"})
		}, "", "crio answers, and has no pods"},
		"CRI-O with pods, and a containerd without": {func(t *testing.T, at func(string) string) {
			serve(t, at("containerd"), namedRuntime{name: "containerd"})
			serve(t, at("crio"), namedRuntime{name: "cri-o", pods: 1})
		}, "crio", ""},
		"k3s, and a link to its socket": {func(t *testing.T, at func(string) string) {
			serve(t, at("k3s"), namedRuntime{name: "containerd", pods: 1})
			if err := os.Symlink(at("k3s"), at("containerd")); err != nil {
				t.Fatal(err)
			}
		}, "containerd", ""},
		"k3s without pods, and a link to its socket": {func(t *testing.T, at func(string) string) {
			serve(t, at("k3s"), namedRuntime{name: "containerd"})
			if err := os.Symlink(at("k3s"), at("containerd")); err != nil {
				t.Fatal(err)
			}
		}, "containerd", ""},
		"two with pods": {func(t *testing.T, at func(string) string) {
			serve(t, at("containerd"), namedRuntime{name: "containerd", pods: 1})
			serve(t, at("crio"), namedRuntime{name: "cri-o", pods: 1})
		}, "", "containerd answers, and has pods"},
		"two with pods, and one without": {func(t *testing.T, at func(string) string) {
			serve(t, at("containerd"), namedRuntime{name: "containerd", pods: 1})
			serve(t, at("crio"), namedRuntime{name: "cri-o", pods: 1})
			serve(t, at("k3s"), namedRuntime{name: "containerd"})
		}, "", "k3s answers, and has no pods"},
		"two without pods": {func(t *testing.T, at func(string) string) {
			serve(t, at("containerd"), namedRuntime{name: "containerd"})
			serve(t, at("crio"), namedRuntime{name: "cri-o"})
		}, "", "containerd answers, and has no pods"},
		"none": {func(*testing.T, func(string) string) {}, "", "crio, "},
		"a containerd without CRI": {func(t *testing.T, at func(string) string) {
			withoutCRI(t, at("containerd"))
		}, "", "containerd does not answer as a container runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			tt.serve(t, at)
			client, err := New(at("containerd"), at("crio"), at("k3s"))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Version(t.Context())
			if errors.Is(err, ErrNoSocket) != (name == "none") {
				t.Errorf("got %v", err)
			}
			switch {
			case tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("found %q, %v; want an error with %q", client.Socket(), err, tt.fails)
			case tt.fails == "" && (err != nil || client.Socket() != at(tt.want)):
				t.Errorf("found %q (%v), want %q", client.Socket(), err, tt.want)
			}
		})
	}
}

// hanging serves a socket that accepts connections and answers nothing, as that of a
// stopped process.
func hanging(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

// TestSearchAgain restarts the runtime, and then replaces it by another one: the client
// follows, and does not take an idle one of another name for the kubelet's meanwhile.
func TestSearchAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	client, err := New(at("containerd"), at("cri-o"), at("idle"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, runtime := range []namedRuntime{{name: "containerd", pods: 1}, {name: "containerd"}, {name: "cri-o", pods: 1}} {
		stop := serve(t, at(runtime.name), runtime)
		version, err := client.Version(t.Context())
		for range 1000 { // the first request may meet the connection that was lost
			if err == nil {
				break
			}
			version, err = client.Version(t.Context())
		}
		if err != nil || version.Name != runtime.name || client.Socket() != at(runtime.name) {
			t.Fatalf("with %+v: %v, %v at %s", runtime, version, err, client.Socket())
		}
		if !exists(at("idle")) {
			serve(t, at("idle"), namedRuntime{name: "idle"})
		}
		stop()
		for range 3 {
			if version, err := client.Version(t.Context()); err == nil {
				t.Fatalf("%s has ended, and %s is asked", runtime.name, version.Name)
			}
		}
	}
}

// TestKnownSockets has the sockets that the distributions use, and finds no runtime for events
// at sockets that do not exist.
func TestKnownSockets(t *testing.T) {
	t.Parallel()
	const want = "[/run/containerd/containerd.sock /run/crio/crio.sock /run/k3s/containerd/containerd.sock " +
		"/var/snap/microk8s/common/run/containerd.sock /run/k0s/containerd.sock]"
	if got := fmt.Sprint(KnownSockets()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if stream, err := newSearch(nil).NewStream(t.Context(), &grpc.StreamDesc{}, "/events"); stream != nil || status.Code(err) != codes.Unavailable {
		t.Errorf("%v, %v", stream, err)
	}
}

// TestSearchRefusesToGuess has the runtime that was the kubelet's idle, and two others with pods.
func TestSearchRefusesToGuess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var sockets []string
	for i, pods := range []int{0, 1, 2} {
		sockets = append(sockets, fmt.Sprint(dir, "/", i))
		serve(t, sockets[i], namedRuntime{name: "containerd", pods: pods})
	}
	s := newSearch(sockets)
	s.last = sockets[0]
	if conn, err := s.choose(t.Context()); conn != nil || err == nil {
		t.Errorf("chose %s, %v", s.last, err)
	}
}

// counting is a runtime that answers a listing once the test lets it.
type counting struct {
	namedRuntime
	listings *atomic.Int32
	answer   <-chan struct{}
}

func (c counting) ListPodSandbox(
	ctx context.Context, request *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	c.listings.Add(1)
	select {
	case <-c.answer:
	case <-ctx.Done():
	}
	return c.namedRuntime.ListPodSandbox(ctx, request)
}

// TestSearchIsShared makes many requests at a time of a client that knows no runtime yet, as
// agent and guard do: one of them searches, for all. Close then closes the only connection.
func TestSearchIsShared(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "crio")
	var listings atomic.Int32
	answer := make(chan struct{})
	serve(t, socket, counting{namedRuntime{name: "cri-o", pods: 1}, &listings, answer})
	client, err := New(filepath.Dir(socket)+"/absent", socket)
	if err != nil {
		t.Fatal(err)
	}
	const requests = 20
	errs := make(chan error, requests)
	for range requests {
		go func() {
			_, err := client.Version(t.Context())
			errs <- err
		}()
	}
	for began := time.Now(); listings.Load() < 2 && time.Since(began) < searchTimeout/2; { // a second search would have begun
		time.Sleep(time.Millisecond)
	}
	close(answer)
	for range requests {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := listings.Load(); n != 1 {
		t.Errorf("%d searches of %d requests", n, requests)
	}
	if err := client.Close(); err != nil || client.Socket() != socket {
		t.Errorf("%v at %s", err, client.Socket())
	}
}

// counted counts the connections of a listener that are open.
type counted struct {
	net.Listener
	open *atomic.Int32
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.open.Add(1)
		conn = &countedConn{conn, sync.OnceFunc(func() { c.open.Add(-1) })}
	}
	return conn, err
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestSearchLeavesNothing searches while no runtime can be chosen, and once one can: of each
// search no connection stays but that to the runtime.
func TestSearchLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var open atomic.Int32
	start := func(name string, register func(*grpc.Server)) (stop func()) {
		listener, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		register(server)
		go func() { _ = server.Serve(counted{listener, &open}) }() // until Stop
		t.Cleanup(server.Stop)
		return server.Stop
	}
	serving := func(pods int) func(*grpc.Server) {
		return func(s *grpc.Server) {
			runtimeapi.RegisterRuntimeServiceServer(s, namedRuntime{name: "containerd", pods: pods})
		}
	}
	expectOpen := func(when string, want int32) {
		t.Helper()
		for began := time.Now(); open.Load() != want && time.Since(began) < 10*time.Second; {
			time.Sleep(time.Millisecond)
		}
		if n := open.Load(); n != want {
			t.Errorf("%s: %d connections are open, want %d", when, n, want)
		}
	}
	start("without-cri", func(*grpc.Server) {})
	start("idle", serving(0))
	stop := start("other", serving(0))
	client, err := New(dir+"/without-cri", dir+"/idle", dir+"/other", dir+"/kubelets")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if version, err := client.Version(t.Context()); err == nil {
			t.Fatalf("found %s", version.Name)
		}
	}
	expectOpen("no runtime is chosen", 0)
	stop()
	start("kubelets", serving(1))
	if _, err := client.Version(t.Context()); err != nil {
		t.Error(err)
	}
	expectOpen("a runtime is chosen", 1)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	expectOpen("after Close", 0)
}
