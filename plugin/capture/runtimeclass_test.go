// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestRuntimeClasses expects sandboxes to be refused, classes that share the node's
// kernel to pass, and others to pass with a warning. The operator's lists take
// precedence over the built-in ones.
func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	const refused, warned, passed = "refused", "warned", "passed"
	for _, test := range []struct {
		class             string
		sandboxed, shared []string
		want              string
		names             string // the key that the message names
	}{
		{class: "", want: passed},
		{class: "runc", want: passed},
		{class: "crun", want: passed},
		{class: "youki", want: passed},
		{class: "nvidia", want: passed},
		{class: "nvidia-cdi", want: passed},
		{class: "performance-openshift-node-performance-profile", want: passed},

		{class: "kata", want: refused, names: "sharedKernelRuntimeClasses"},
		{class: "kata-qemu", want: refused, names: "sharedKernelRuntimeClasses"},
		{class: "kata-clh", want: refused},
		{class: "kata-qemu-nvidia-gpu", want: refused},
		{class: "kata-mshv-vm-isolation", want: refused},
		{class: "gvisor", want: refused},
		{class: "gvisor-kvm", want: refused},
		{class: "runsc", want: refused},
		{class: "runsc-debug", want: refused},
		{class: "firecracker", want: refused},
		{class: "urunc", want: refused},
		{class: "peerpods", want: refused},
		{class: "contrast-cc", want: refused},
		{class: "enclave-cc", want: refused},
		{class: "cloud-hypervisor", want: refused},
		{class: "clh", want: refused},
		{class: "microvm", want: refused},
		{class: "krun", want: refused},
		{class: "edera", want: refused},
		{class: "vmm", want: refused},
		{class: "nabla", want: refused},
		{class: "runnc", want: refused},
		{class: "quark", want: refused},
		{class: "kuasar-vmm", want: refused},
		{class: "crun-vm", want: refused},

		{class: "wasmtime", want: warned, names: "sandboxedRuntimeClasses"},
		{class: "runc-debug", want: warned, names: "sharedKernelRuntimeClasses"},
		{class: "performance", want: warned},
		{class: "kat", want: warned},
		{class: "my-kata", want: warned},

		{class: "wasmtime", sandboxed: []string{"wasmtime"}, want: refused, names: "sandboxedRuntimeClasses"},
		{class: "wasmtime-x", sandboxed: []string{"wasm*"}, want: refused},
		{class: "wasmtime-x", sandboxed: []string{"wasmtime"}, want: warned},
		{class: "runc", sandboxed: []string{"run*"}, want: refused, names: "sandboxedRuntimeClasses"},
		{class: "kata-fake", shared: []string{"kata-fake"}, want: passed},
		{class: "kata-qemu", shared: []string{"kata-fake"}, want: refused},
		{class: "gvisor-host", shared: []string{"gvisor*"}, want: passed},
		{class: "wasmtime", shared: []string{"wasm*"}, want: passed},
		{class: "anything", shared: []string{"*"}, want: passed},
		{class: "both", sandboxed: []string{"both"}, shared: []string{"both"}, want: refused, names: "sandboxedRuntimeClasses"},
	} {
		settings := config.DefaultSettings()
		settings.SandboxedRuntimeClasses, settings.SharedKernelRuntimeClasses = test.sandboxed, test.shared
		_, warnings, err := decide(meshedPod(withClass(test.class)), settings, only4)
		got, message := passed, strings.Join(warnings, "\n")
		if _, ok := errors.AsType[Refusal](err); ok {
			got, message = refused, err.Error()
		} else if len(warnings) > 0 {
			got = warned
		}
		if _, _, err := decide(fencedPod("true", withClass(test.class)), settings, only4); (err == nil) != (test.want == passed) {
			t.Errorf("class %q of a fenced pod: %v", test.class, err)
		}
		if got != test.want || !strings.Contains(message, test.names) || got != passed && !strings.Contains(message, test.class) {
			t.Errorf("class %q, sandboxed %q, shared %q: %s, want %s: %s", test.class, test.sandboxed, test.shared, got, test.want, message)
		}
	}
	if _, warnings, err := decide(meshedPod(), config.DefaultSettings(), only4); err != nil || len(warnings) > 0 {
		t.Errorf("no class: %q, %v", warnings, err)
	}
}
