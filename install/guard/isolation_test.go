// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/capture-cni/capture-cni/install/cri"
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
