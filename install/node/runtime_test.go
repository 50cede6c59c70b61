// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/install/cri"
)

// named is a runtime that reports its name and no more.
type named struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name, version string
}

func (n named) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: n.name, RuntimeVersion: n.version}, nil
}

func (named) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

// serveRuntime answers at a socket until the test ends.
func serveRuntime(t *testing.T, runtime runtimeapi.RuntimeServiceServer) *cri.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	client, err := cri.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestWhereTheRuntimeLooks goes by the files of the runtime that runs, not of
// another that the node has, too.
func TestWhereTheRuntimeLooks(t *testing.T) {
	t.Parallel()
	both := machine(t, map[string]string{
		"/etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n  conf_dir = \"/etc/cni/net.d\"\n",
		"/etc/crio/crio.conf":         "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d\"\nplugin_dirs = [\"/var/lib/cni/bin\"]\n",
	})
	for name, want := range map[string]string{"cri-o": "/etc/kubernetes/cni/net.d", "containerd": "/etc/cni/net.d"} {
		if found, source := runtimeConfigOf(t.Context(), both, serveRuntime(t, named{name: name})); found.confDir != want {
			t.Errorf("%s: %s, by %s; want %s", name, found.confDir, source, want)
		}
	}
}

// TestPreflightRefusesDropIns of a runtime that loads none, also where it does not report its
// directories and the agent can't read its files.
func TestPreflightRefusesDropIns(t *testing.T) {
	t.Parallel()
	settings := machine(t, map[string]string{"/etc/cni/net.d/10-a.conflist": `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`})
	settings.Mode = DropIn
	for version, refused := range map[string]bool{"1.32.9": true, "1.34.0": false} {
		problems := Preflight(t.Context(), settings, serveRuntime(t, named{name: "cri-o", version: version})).String()
		if strings.Contains(problems, "cri-o "+version+" loads no drop-in") != refused {
			t.Errorf("CRI-O %s is refused: %v, want %v: %s", version, !refused, refused, problems)
		}
	}
}

// TestWithoutASocket leaves the decision to the files, except while the runtime has to decide
// on the mode.
func TestWithoutASocket(t *testing.T) {
	t.Parallel()
	client, err := cri.New(filepath.Join(t.TempDir(), "absent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for mode, isFault := range map[Mode]bool{Auto: true, Insert: false, DropIn: false, Owned: false, MultusChain: false, Multus: false} {
		n := New(Settings{Mode: mode}, nil, client, slog.New(slog.DiscardHandler))
		if fault := n.runtimeFault(t.Context(), mode); (fault != nil) != isFault || isFault && !errors.Is(fault, cri.ErrNoSocket) {
			t.Errorf("mode %s: %v", mode, fault)
		}
	}
}

// TestUnlistedPodsKeepTheEntry has a runtime that does not list its pods: captured ones
// may be among them.
func TestUnlistedPodsKeepTheEntry(t *testing.T) {
	t.Parallel()
	settings := machine(t, map[string]string{"/etc/cni/net.d/" + ownedName: `{"name": "k8s", "plugins": [{"type": "capture-cni"}]}`})
	n := New(settings, nil, serveRuntime(t, named{}), slog.New(slog.DiscardHandler))
	if err := n.checkRemovable(t.Context(), false); err == nil || !strings.Contains(err.Error(), "the entry stays") {
		t.Errorf("got %v", err)
	}
	if err := n.checkRemovable(t.Context(), true); err != nil {
		t.Errorf("with --force: %v", err)
	}
}

// calling is a runtime that reports the configuration of its network.
type calling struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	source string
}

func (c calling) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	info := fmt.Sprintf(`{"Networks": [{"Config": {"Name": "lo", "Source": "{}"}}, {"Config": {"Source": %q}}]}`, c.source)
	return &runtimeapi.StatusResponse{Info: map[string]string{"cniconfig": info}}, nil
}

// TestMultusWithoutTheChain is a fault in mode multus-chain: no pod would be captured.
func TestMultusWithoutTheChain(t *testing.T) {
	t.Parallel()
	const chain = `,"auxiliaryCNIChainName":"vendor-cni-chain"`
	for source, want := range map[string]string{
		`{"plugins":[{"type":"multus-shim"` + chain + `}]}`: "",
		`{"plugins":[{"type":"multus-shim"}]}`:              "has no auxiliaryCNIChainName",
		`{"plugins":[{"type":"ptp"}]}`:                      "does not call Multus",
	} {
		n := New(Settings{Mode: MultusChain, NetDir: "/run/multus/cni/net.d/vendor-cni-chain"}, nil, serveRuntime(t, calling{source: source}), slog.New(slog.DiscardHandler))
		fault := n.runtimeFault(t.Context(), MultusChain)
		if (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Error(), want) {
			t.Errorf("%s: %v, want %q", source, fault, want)
		}
	}
	n := New(Settings{Mode: MultusChain}, nil, serveRuntime(t, named{name: "cri-o"}), slog.New(slog.DiscardHandler))
	if fault := n.runtimeFault(t.Context(), MultusChain); fault != nil {
		t.Errorf("a runtime that does not report it: %v", fault)
	}
}
