// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestIsolatingRuntime uses the type of the shim and its program where the runtime
// reports them, and the handler's name only where it does not.
func TestIsolatingRuntime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ handler, runtimeType, program, want string }{
		{"", "", "", ""},
		{"runc", "io.containerd.runc.v2", "", ""},
		{"kata", "io.containerd.runc.v2", "/usr/bin/runc", ""},
		{"", "io.containerd.runc.v2", "/opt/kata/bin/crun", ""},
		{"", "io.containerd.kata.v2", "", "io.containerd.kata.v2"},
		{"", "io.containerd.kata-qemu.v2", "", "io.containerd.kata-qemu.v2"},
		{"", "io.containerd.runsc.v1", "", "io.containerd.runsc.v1"},
		{"", "aws.firecracker", "", "aws.firecracker"},
		{"", "/usr/bin/containerd-shim-kata-v2", "", "/usr/bin/containerd-shim-kata-v2"},
		{"", "/usr/bin/containerd-shim-runc-v2", "", ""},
		{"", "io.containerd.runc.v2", "/usr/local/bin/runsc", "runsc"},
		{"", "io.containerd.runc.v2", "/usr/bin/kata-runtime", "kata-runtime"},
		{"kata-clh", "", "", "kata-clh"},
		{"gVisor", "", "", "gVisor"},
		{"crun", "", "", ""},
		{"nvidia", "", "", ""},
		{"performance-katalog", "", "", ""},
	} {
		if got := isolatingRuntime(cri.OCIRuntime{Handler: tt.handler, Type: tt.runtimeType, Program: tt.program}); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// TestCheckIsolated has a pod whose network stack is its own: it is uncaptured, whatever its
// answer, unless it is exempt by it or by the last one.
func TestCheckIsolated(t *testing.T) {
	t.Parallel()
	w := examined("web", report.Finding{})
	w.sandbox.Runtime.Handler = "kata"
	w.sandbox.Annotations = injected()
	pod := capture.Pod{Annotations: injected(), Containers: []capture.Container{{Name: "app"}, {Name: "istio-proxy"}}}
	meshes := []config.MeshName{config.Istio}
	if got := w.checkIsolated(&lookup.Answer{Pod: &pod, Digest: "1"}, meshes); got.Code != report.Uncaptured || !strings.Contains(got.Reason, "kata") || w.desired.digest != "1" {
		t.Errorf("%+v, %+v", got, w.desired)
	}
	pod.Containers = pod.Containers[:1]
	for _, answer := range []*lookup.Answer{{Pod: &pod, Digest: "2", HasController: true}, nil} {
		got := w.checkIsolated(answer, meshes)
		if got.Code != report.Exempt || got.Reason == "" || w.desired.exemption.Cause != capture.NoProxy || !w.desired.hasController {
			t.Errorf("without a proxy: %+v, %+v", got, w.desired)
		}
	}
	for name, isolates := range map[string]bool{"my_kata": true, "kata-qemu": true, "io.containerd.kata.v2": true, "skata": false, "a_kata_b": true} {
		if got := isolatingName(name) != ""; got != isolates {
			t.Errorf("%s: isolates %v", name, got)
		}
	}
}

// TestHasNetwork watches pods whose network is their own, or may be.
func TestHasNetwork(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sandbox cri.Sandbox
		want    bool
	}{
		"of the node":  {cri.Sandbox{}, false},
		"its own":      {cri.Sandbox{NetNS: "/run/netns/web"}, true},
		"in a machine": {cri.Sandbox{Runtime: cri.OCIRuntime{Handler: "kata"}}, true},
		"not known":    {cri.Sandbox{NetworkError: errors.New("no answer")}, true},
	} {
		tt.sandbox.Labels, tt.sandbox.Annotations = injected(), injected()
		if got := hasNetwork(tt.sandbox); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		if kept := withoutMetadata(tt.sandbox); kept.Labels != nil || kept.Annotations != nil || kept.NetNS != tt.sandbox.NetNS {
			t.Errorf("%s: kept %+v", name, kept)
		}
	}
}
