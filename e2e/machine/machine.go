// SPDX-License-Identifier: Apache-2.0

// Package machine makes a node for tests that run on none: its files, runtimes that answer,
// the agent's process and pods that a runtime starts.
package machine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
)

// NetDir is a runtime's directory with these files.
func NetDir(t *testing.T, files map[string]string) *host.Dir {
	t.Helper()
	net, err := host.OpenDir(t.TempDir(), nil)
	lab.Check(t, err)
	t.Cleanup(func() { _ = net.Close() })
	for name, content := range files {
		Write(t, net, name, content)
	}
	return net
}

func Write(t *testing.T, net *host.Dir, name, content string) {
	t.Helper()
	path := filepath.Join(net.Path(), name)
	lab.Check(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
}

// Files returns all files below the directory, and empty directories with a slash.
func Files(t *testing.T, net *host.Dir) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(net.Path(), func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(net.Path(), path)
		if err != nil || entry.IsDir() {
			if children, readErr := os.ReadDir(path); readErr == nil && len(children) == 0 && name != "." {
				found[name+"/"] = ""
			}
			return err
		}
		content, err := os.ReadFile(path)
		found[name] = string(content)
		return err
	})
	lab.Check(t, err)
	return found
}

func OpenDir(t *testing.T, path string) *host.Dir {
	t.Helper()
	dir, err := host.OpenDir(path, nil)
	lab.Check(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

// New makes a node's file system of a few files, and returns its root.
func New(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		lab.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		lab.Check(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

// Named is a runtime that reports its name and no more.
type Named struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	Runtime, Release string
}

func (n Named) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: n.Runtime, RuntimeVersion: n.Release}, nil
}

func (Named) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

// Loading is a runtime that reports its CNI configuration with its status, as containerd does.
type Loading struct {
	Named
	Config string
}

func (l Loading) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"cniconfig": l.Config}}, nil
}

// CRIO is a runtime that serves its configuration as CRI-O does.
type CRIO struct {
	Named
	Config string
}

func (c CRIO) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/config" {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, c.Config)
}

// Serve answers at a socket until the test ends, by HTTP as well if the runtime does.
func Serve(t *testing.T, runtime runtimeapi.RuntimeServiceServer) *cri.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	if other, ok := runtime.(http.Handler); ok {
		both := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				server.ServeHTTP(w, r)
				return
			}
			other.ServeHTTP(w, r)
		})}
		both.Protocols.SetHTTP1(true)
		both.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = both.Serve(listener) }() // until Close
		t.Cleanup(func() { _ = both.Close() })
	} else {
		go func() { _ = server.Serve(listener) }() // until Stop
	}
	t.Cleanup(server.Stop)
	client, err := cri.New(socket)
	lab.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Lists and a configuration of interface plugins.
const (
	PtpList    = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}]}`
	BridgeConf = `{"cniVersion": "1.0.0", "name": "podnet", "type": "bridge"}`
)

// Lists as istio-cni leaves them: its entry comes last, and always has the key of ambient
// mode.
const (
	SidecarList = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}, {"ambient_enabled": false, "name": "istio-cni", "type": "istio-cni"}]}`
	AmbientList = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}, {"ambient_enabled": true, "name": "istio-cni", "type": "istio-cni"}]}`
	BothList    = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}, {"type": "istio-cni"}, {"type":"capture-cni"}]}`
	LinkerdList = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}, {"type": "linkerd-cni"}]}`
)

func ExpectFiles(t *testing.T, net *host.Dir, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, Files(t, net)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
