// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// SandboxPrefixes returns prefixes of the usual names of runtime classes whose pods have their own
// network stack, in a virtual machine or in a user-space kernel. Rules in the network namespace have no
// effect for such pods. The plugin knows only the class's name, because the class's runtime depends on
// the RuntimeClass object and the node's configuration.
func SandboxPrefixes() []string {
	return []string{
		"kata", "peerpods", "contrast", "enclave-cc", // Kata Containers, and projects that use it
		"gvisor", "runsc",
		"firecracker", "cloud-hypervisor", "clh", "microvm", "krun", "crun-vm", "edera",
		"kuasar", "vmm", "quark", // sandboxers of Kuasar
		"urunc", "nabla", "runnc", // unikernels
	}
}

// sharedKernelClasses returns the usual names of runtime classes whose pods use the network stack of
// the node's kernel. A * at the end matches any suffix.
func sharedKernelClasses() []string {
	return []string{
		"runc", "crun", "youki",
		"nvidia*",       // wrappers of runc
		"performance-*", // OpenShift's PerformanceProfiles, which tune runc or crun
	}
}

// checkRuntimeClass refuses pods with their own network stack. It warns about unknown runtime classes, and
// refuses fenced pods of such classes.
// sandboxedRuntimeClasses takes precedence over sharedKernelRuntimeClasses, and both lists take
// precedence over the built-in names.
func (d *decider) checkRuntimeClass() {
	class := d.pod.RuntimeClass
	switch {
	case class == "":
	case matches(class, d.settings.SandboxedRuntimeClasses):
		d.refuse("runtime class %s is in sandboxedRuntimeClasses: such a pod has a network stack of its own and would run uncaptured",
			config.Quoted(class))
	case matches(class, d.settings.SharedKernelRuntimeClasses):
	case slices.ContainsFunc(SandboxPrefixes(), func(name string) bool { return strings.HasPrefix(class, name) }):
		d.refuse("runtime class %s has the name of a sandbox with a network stack of its own: the pod would run uncaptured; "+
			"if its pods share the node's kernel, add the name to sharedKernelRuntimeClasses", config.Quoted(class))
	case matches(class, sharedKernelClasses()):
	case Fenced(d.pod.Annotations):
		d.refuse("runtime class %s is not known: if its pods have a network stack of their own, this pod would run without its fence; "+
			"if they share the node's kernel, add the name to sharedKernelRuntimeClasses", config.Quoted(class))
	default:
		d.warn("runtime class %s is not known: if its pods have a network stack of their own, this pod runs uncaptured; "+
			"add the name to sharedKernelRuntimeClasses or to sandboxedRuntimeClasses", config.Quoted(class))
	}
}

// matches reports whether one of the names matches the runtime class. A * at the end of a name matches
// any suffix.
func matches(class string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		prefix, wild := strings.CutSuffix(name, "*")
		return class == name || wild && strings.HasPrefix(class, prefix)
	})
}
