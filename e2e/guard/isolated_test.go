// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// typedCRI is a runtime that says of which type a sandbox's own runtime is.
type typedCRI struct {
	criStub
	handler, runtimeType, binary string
	asked                        int
}

func (c *typedCRI) PodSandboxStatus(ctx context.Context, asked *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	c.asked++
	answer, err := c.criStub.PodSandboxStatus(ctx, asked)
	answer.Status.RuntimeHandler = c.handler
	if c.runtimeType != "" {
		answer.Info["info"] = strings.Replace(answer.Info["info"], "{", fmt.Sprintf(`{"runtimeType":%q,"runtimeOptions":{"binary_name":%q},`, c.runtimeType, c.binary), 1)
	}
	return answer, err
}

// TestIsolatedSandbox reports a pod whose runtime keeps a network stack of its
// own as uncaptured, whatever its namespace holds, and neither repairs nor
// evicts it: nothing of that would capture it.
func TestIsolatedSandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		handler, runtimeType, binary string
		isolated                     bool
	}{
		"runc":                        {"", "io.containerd.runc.v2", "", false},
		"kata by another name":        {"fast", "io.containerd.kata.v2", "", true},
		"gVisor":                      {"gvisor", "io.containerd.runsc.v1", "", true},
		"gVisor as runc's program":    {"fast", "io.containerd.runc.v2", "/usr/local/bin/runsc", true},
		"runc by kata's name":         {"kata", "io.containerd.runc.v2", "/usr/bin/runc", false},
		"CRI-O's kata":                {"kata-qemu", "", "", true},
		"CRI-O's crun":                {"crun", "", "", false},
		"a wrapper of runc":           {"nvidia", "io.containerd.runc.v2", "/usr/bin/nvidia-container-runtime", false},
		"a shim that is not reported": {"", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, policy := range []guard.Policy{guard.InPlace, guard.Evict} {
				testIsolated(t, &typedCRI{handler: tt.handler, runtimeType: tt.runtimeType, binary: tt.binary}, policy, tt.isolated)
			}
		})
	}
}

func testIsolated(t *testing.T, runtime *typedCRI, policy guard.Policy, isolated bool) {
	t.Helper()
	n := newNode()
	conn := n.listen(t)
	captured, bare := n.run(t, "captured"), n.run(t, "bare")
	captured.capture(t, nil)
	n.own("bare", "ReplicaSet")
	n.own("captured", "ReplicaSet")
	runtime.netns = map[string]string{}
	for _, p := range []*pod{captured, bare} {
		runtime.netns[p.sandbox.ID] = p.sandbox.NetNS
		runtime.items = append(runtime.items, &runtimeapi.PodSandbox{
			Id: p.sandbox.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.sandbox.Annotations, RuntimeHandler: runtime.handler,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, Uid: p.sandbox.UID},
		})
	}
	connection, err := cri.New(serveCRI(t, t.TempDir(), runtime))
	lab.Check(t, err)
	defer connection.Close()
	keeper, registry := n.keeperOf(t, cri.NewLocator(connection), guard.Settings{Policy: policy})
	for range 2 {
		keeper.Round(t.Context())
	}
	sent := receive(t, conn)
	if !isolated {
		return
	}
	expect(t, registry, map[terms.State]float64{terms.Uncaptured: 2})
	for name, records := range sent {
		if len(records) != 1 || records[0].Verdict != received.Found || records[0].Reason != received.Uncaptured || !strings.Contains(records[0].Message, "network stack") {
			t.Errorf("%s, %s: reported %+v", policy, name, records)
		}
	}
	if len(sent) != 2 || bare.rules(t) != (netfilter.State{}) || runtime.asked != 2 {
		t.Errorf("%s: %d pods reported, %+v in the bare one, %d status requests", policy, len(sent), bare.rules(t), runtime.asked)
	}
}
