// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestWithoutASocket leaves the decision to the files, except while the runtime has to decide
// on the mode.
func TestWithoutASocket(t *testing.T) {
	t.Parallel()
	client, err := cri.New(filepath.Join(t.TempDir(), "absent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for mode, isFault := range map[terms.Mode]bool{terms.Auto: true, terms.Insert: false, terms.DropIn: false, terms.Owned: false, terms.MultusChain: false, terms.Multus: false} {
		n := New(settings.Node{Mode: mode}, nil, client, slog.New(slog.DiscardHandler))
		if fault := n.runtimeFault(t.Context(), mode); (fault != nil) != isFault || isFault && !errors.Is(fault, cri.ErrNoSocket) {
			t.Errorf("mode %s: %v", mode, fault)
		}
	}
}

// TestUnlistedPodsKeepTheEntry has a runtime that does not list its pods: captured ones
// may be among them.
func TestUnlistedPodsKeepTheEntry(t *testing.T) {
	t.Parallel()
	wanted := settings.Default(machine.New(t, map[string]string{"/etc/cni/net.d/" + entry.OwnedName: `{"name": "k8s", "plugins": [{"type": "capture-cni"}]}`}))
	n := New(wanted, nil, machine.Serve(t, machine.Named{}), slog.New(slog.DiscardHandler))
	if err := n.CheckRemovable(t.Context(), false); err == nil || !strings.Contains(err.Error(), "the entry stays") {
		t.Errorf("got %v", err)
	}
	if err := n.CheckRemovable(t.Context(), true); err != nil {
		t.Errorf("with --force: %v", err)
	}
}

// TestDrainIsAwaited has a captured pod on a node that should be cleaned: the node waits, which
// is no fault of it.
func TestDrainIsAwaited(t *testing.T) {
	t.Parallel()
	wanted := settings.Default(machine.New(t, map[string]string{"/etc/cni/net.d/" + entry.OwnedName: `{"name": "k8s", "plugins": [{"type": "capture-cni"}]}`}))
	n := New(wanted, nil, machine.Serve(t, running{}), slog.New(slog.DiscardHandler))
	if err := n.CheckRemovable(t.Context(), false); !entry.IsWaiting(err) || !strings.Contains(err.Error(), "1 captured pods still run on the node (shop/web)") {
		t.Errorf("got %v", err)
	}
}

// running is a runtime with a pod of the mesh.
type running struct{ machine.Named }

func (running) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
		Id: "1", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: "web"}, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
	}}}, nil
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
		n := New(settings.Node{Mode: terms.MultusChain, NetDir: "/run/multus/cni/net.d/vendor-cni-chain"}, nil, machine.Serve(t, calling{source: source}), slog.New(slog.DiscardHandler))
		fault := n.runtimeFault(t.Context(), terms.MultusChain)
		if (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Error(), want) {
			t.Errorf("%s: %v, want %q", source, fault, want)
		}
	}
	n := New(settings.Node{Mode: terms.MultusChain}, nil, machine.Serve(t, machine.Named{Runtime: "cri-o"}), slog.New(slog.DiscardHandler))
	if fault := n.runtimeFault(t.Context(), terms.MultusChain); fault != nil {
		t.Errorf("a runtime that does not report it: %v", fault)
	}
}
