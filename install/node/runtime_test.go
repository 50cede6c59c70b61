// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
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
	for mode, isFault := range map[report.Mode]bool{report.Auto: true, report.Insert: false, report.DropIn: false, report.Owned: false, report.MultusChain: false, report.Multus: false} {
		n := New(Settings{Mode: mode}, nil, client, slog.New(slog.DiscardHandler))
		if fault := n.runtimeFault(t.Context(), mode); (fault != nil) != isFault || isFault && !errors.Is(fault, cri.ErrNoSocket) {
			t.Errorf("mode %s: %v", mode, fault)
		}
	}
}

// TestNotReadyDuringATrial asks for the node's state while the agent tries a drop-in: a runtime
// that does not report what it has loaded may ignore the drop-in.
func TestNotReadyDuringATrial(t *testing.T) {
	t.Parallel()
	k := keep(t, nil, func(s *Settings) { s.Mode = report.Auto })
	var during Report
	var asked atomic.Bool
	k.node.Runtime = machine.Serve(t, asking{containerd, func() {
		if dropIns, _ := filepath.Glob(k.node.Settings.At("/etc/cni/net.d/*/*")); len(dropIns) > 0 && !asked.Swap(true) {
			during = k.CurrentReport(t.Context())
		}
	}})
	lab.Check(t, os.Remove(k.node.Settings.At(ptpPath)))
	k.resync(t.Context(), false)
	k.rewrite()
	k.resync(t.Context(), false)
	if want := "entry: the agent has not decided on a mode yet"; withoutCodes(during.String()) != want {
		t.Errorf("during the trial: %s, want %s", during, want)
	}
	k.expect("after the trial", good, nil)
}

// asking calls a function before it answers, and does not report what it has loaded.
type asking struct {
	machine.Named
	call func()
}

func (r asking) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.call()
	return &runtimeapi.StatusResponse{}, nil
}

// TestUnlistedPodsKeepTheEntry has a runtime that does not list its pods: captured ones
// may be among them.
func TestUnlistedPodsKeepTheEntry(t *testing.T) {
	t.Parallel()
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/" + conflist.OwnedName: `{"name": "k8s", "plugins": [{"type": "capture-cni"}]}`}))
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
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/" + conflist.OwnedName: `{"name": "k8s", "plugins": [{"type": "capture-cni"}]}`}))
	n := New(wanted, nil, machine.Serve(t, running{}), slog.New(slog.DiscardHandler))
	if err := n.CheckRemovable(t.Context(), false); !conflist.IsWaiting(err) || !strings.Contains(err.Error(), "1 meshed pods still run on the node (shop/web)") {
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
		n := New(Settings{Mode: report.MultusChain, NetDir: "/run/multus/cni/net.d/vendor-cni-chain"}, nil, machine.Serve(t, calling{source: source}), slog.New(slog.DiscardHandler))
		fault := n.runtimeFault(t.Context(), report.MultusChain)
		if (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Error(), want) {
			t.Errorf("%s: %v, want %q", source, fault, want)
		}
	}
	n := New(Settings{Mode: report.MultusChain}, nil, machine.Serve(t, machine.Named{Runtime: "cri-o"}), slog.New(slog.DiscardHandler))
	if fault := n.runtimeFault(t.Context(), report.MultusChain); fault != nil {
		t.Errorf("a runtime that does not report it: %v", fault)
	}
}

// TestLoadsDropIn has a runtime load a drop-in at once, late, or never, and answer only at
// times. Of a runtime that answers and has not loaded it in time, mode auto edits the list.
func TestLoadsDropIn(t *testing.T) {
	t.Parallel()
	var ours cri.CNIConfig
	const plugins = `{"Networks": [{"Config": {"Plugins": [{"Network": {"Type": "ptp"}}, {"Network": {"Type": %q}}]}}]}`
	text := fmt.Sprintf(plugins, conflist.PluginType)
	if err := json.Unmarshal([]byte(text), &ours); err != nil {
		t.Fatal(err)
	}
	const never = time.Hour
	for name, test := range map[string]struct {
		loaded, answers time.Duration // from then on
		fails           time.Duration // from then on, unless 0
		fault           error         // until it answers
		want            bool
		wantErr         string
	}{
		"at once":                      {want: true},
		"late":                         {loaded: 15 * time.Second, want: true},
		"at the last moment":           {loaded: 29 * time.Second, want: true},
		"never":                        {loaded: never},
		"loaded, and answers late":     {answers: 3 * time.Second, fault: errors.New("busy"), want: true},
		"loaded late, and answers":     {loaded: 15 * time.Second, answers: 3 * time.Second, fault: errors.New("busy"), want: true},
		"does not answer":              {answers: never, fault: errors.New("busy"), wantErr: "whether it loads a drop-in: busy"},
		"fails at the last moment":     {loaded: never, fails: 30*time.Second + 1, fault: errors.New("busy"), wantErr: "whether it loads a drop-in: busy"},
		"does not report what it has":  {answers: never, fault: cri.ErrNoConfig},
		"does not report, and is busy": {answers: never, fault: fmt.Errorf("%w: busy", cri.ErrNoConfig)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				loads, err := loadsDropIn(t.Context(), func(context.Context) (cri.CNIConfig, error) {
					switch after := time.Since(began); {
					case after < test.answers, test.fails > 0 && after >= test.fails:
						return cri.CNIConfig{}, test.fault
					case after < test.loaded:
						return cri.CNIConfig{}, nil
					}
					return ours, nil
				})
				if loads != test.want || (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("it loads the drop-in: %t, %v", loads, err)
				}
			})
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	unloaded := func(context.Context) (cri.CNIConfig, error) { return cri.CNIConfig{}, nil }
	if loads, err := loadsDropIn(ended, unloaded); loads || !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ends: %t, %v", loads, err)
	}
}

// TestRival names a program only by its traces: the plugins of a list say nothing about the
// program that writes it.
func TestRival(t *testing.T) {
	t.Parallel()
	const (
		ptp     = `{"cniVersion": "1.0.0", "name": "k8s", "plugins": [{"type": "ptp"}]}`
		cilium  = `{"cniVersion": "1.0.0", "name": "cilium", "plugins": [{"type": "cilium-cni"}]}`
		renamed = "10-a.conflist.cilium_bak"
	)
	for name, test := range map[string]struct {
		files        map[string]string
		mode         report.Mode
		writer, what string
	}{
		"a list of ptp":               {map[string]string{"10-a.conflist": ptp}, report.Insert, "unknown", "an unknown program keeps removing the entry (mode insert, DIR/10-a.conflist, network k8s)"},
		"a list of Cilium":            {map[string]string{"05-cilium.conflist": cilium}, report.Insert, "unknown", "DIR/05-cilium.conflist, network cilium)"},
		"Cilium renamed a list":       {map[string]string{"05-cilium.conflist": cilium, renamed: ptp}, report.Owned, "cilium", "Cilium keeps removing the entry (mode owned, DIR/05-cilium.conflist, network cilium); it renamed " + renamed},
		"Cilium did, and leaves this": {map[string]string{"05-cilium.conflist": cilium, renamed: ptp}, report.DropIn, "unknown", "an unknown program"},
		"Cilium did, and is gone":     {map[string]string{"10-b.conflist": ptp, renamed: ptp}, report.Insert, "unknown", "DIR/10-b.conflist"},
		"a name with other text":      {map[string]string{"10-a.conflist": strings.ReplaceAll(ptp, "k8s", "a; rm -r b")}, report.Insert, "unknown", "(mode insert, DIR/10-a.conflist, network "},
		"no list":                     {nil, report.Insert, "unknown", "an unknown program keeps removing the entry (mode insert, no list in DIR)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, net, _ := listNode(t, test.files, test.mode, false)
			writer, warning := n.Rival(t.Context())
			if what := strings.ReplaceAll(warning.Reason, net.Path(), "DIR"); writer != test.writer || !strings.Contains(what, test.what) || strings.Contains(what, "rm -r") {
				t.Errorf("%s: %s, want %s: %s", writer, what, test.writer, test.what)
			}
			if isCilium := strings.Contains(warning.Next, "cni.exclusive"); isCilium != (writer == "cilium") || warning.Next == "" {
				t.Errorf("%s: the next step is %q", writer, warning.Next)
			}
		})
	}
}
