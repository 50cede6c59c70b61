// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// A runtime class is known by its name alone: the handler behind it, and what
// that does to the network, are the node's business. A name ends with * where
// every name with that beginning is meant.

// Sandboxes are the beginnings of customary names of runtimes that run a pod on a
// network stack of its own, in a virtual machine or in a kernel in user space:
// rules in the network namespace have no effect on it there.
func Sandboxes() []string {
	return []string{
		"kata", "peerpods", "contrast", "enclave-cc", // Kata Containers, and what is built on it
		"gvisor", "runsc",
		"firecracker", "cloud-hypervisor", "clh", "microvm", "krun", "crun-vm", "edera",
		"kuasar", "vmm", "quark", // sandboxers of Kuasar
		"urunc", "nabla", "runnc", // unikernels
	}
}

// sharedKernelClasses are customary names of runtimes whose pods have the node's
// kernel for a network stack.
func sharedKernelClasses() []string {
	return []string{
		"runc", "crun", "youki",
		"nvidia*",       // wrappers of runc
		"performance-*", // OpenShift's PerformanceProfiles: runc or crun, tuned
	}
}

// judgeRuntimeClass refuses a pod whose runtime class is known for a network stack
// of its own, and warns of one that is not known. The operator's lists come
// first; a name in both is refused.
func (d *decider) judgeRuntimeClass() {
	class := d.pod.RuntimeClass
	switch {
	case class == "":
	case matches(class, d.settings.SandboxedRuntimeClasses):
		d.refuse("runtime class %s is in sandboxedRuntimeClasses: such a pod has a network stack of its own and would run uncaptured", config.Quoted(class))
	case matches(class, d.settings.SharedKernelRuntimeClasses):
	case slices.ContainsFunc(Sandboxes(), func(name string) bool { return strings.HasPrefix(class, name) }):
		d.refuse("runtime class %s has the name of a sandbox with a network stack of its own: the pod would run uncaptured; if its pods share the node's kernel, add the name to sharedKernelRuntimeClasses", config.Quoted(class))
	case !matches(class, sharedKernelClasses()):
		d.warn("runtime class %s is not known: if its pods have a network stack of their own, this pod runs uncaptured; add the name to sharedKernelRuntimeClasses or to sandboxedRuntimeClasses", config.Quoted(class))
	}
}

// matches reports whether one of the names, which may end with *, is that of the class.
func matches(class string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		prefix, wild := strings.CutSuffix(name, "*")
		return class == name || wild && strings.HasPrefix(class, prefix)
	})
}
