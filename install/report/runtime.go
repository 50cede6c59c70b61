// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"
)

// Runtime is a container runtime, with the name and version that it reports.
type Runtime struct{ Name, Version string }

// Names of the runtimes whose versions this file knows.
const (
	containerd = "containerd"
	crio       = "cri-o"
)

// IsCRIO reports whether the runtime is CRI-O.
func (v Runtime) IsCRIO() bool { return v.Name == crio }

// IsContainerd reports whether the runtime is containerd.
func (v Runtime) IsContainerd() bool { return v.Name == containerd }

// ParseRuntime parses a runtime in the form that a Node's status has, such as "containerd://2.1.4".
func ParseRuntime(text string) Runtime {
	name, version, _ := strings.Cut(text, "://")
	return Runtime{name, version}
}

// LoadsDropIns reports whether the runtime is known to load drop-ins from the directory next to a
// conflist, which needs libcni 1.3.
func (v Runtime) LoadsDropIns() bool { return v.isSince(containerd, 2, 1) || v.isSince(crio, 1, 33) }

// IgnoresDropIns reports whether the runtime is known to load no drop-ins. It returns false for a
// runtime or a version that this file does not know.
func (v Runtime) IgnoresDropIns() bool {
	return (v.isSince(containerd, 0, 0) || v.isSince(crio, 0, 0)) && !v.LoadsDropIns()
}

// HidesDropIns reports whether mode auto can't choose dropin, because the runtime is known to load no
// drop-ins or, as CRI-O, never reports the configuration that it has loaded.
func (v Runtime) HidesDropIns() bool { return v.IsCRIO() || v.IgnoresDropIns() }

// PassesAnnotations reports whether the runtime passes a pod's annotations to plugins, and whether
// capture-cni knows the runtime.
func (v Runtime) PassesAnnotations() (passes, known bool) {
	return v.isSince(containerd, 1, 5) || v.isSince(crio, 1, 29), v.IsContainerd() || v.IsCRIO()
}

// SendsToAll reports whether the runtime is known to send each event to all listeners. In earlier
// versions, a second listener takes events from the kubelet, so that pods hang:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func (v Runtime) SendsToAll() bool { return v.isSince(containerd, 2, 0) || v.isSince(crio, 1, 30) }

// isSince reports whether the runtime has this name and at least this version. It returns false for an
// unknown version. It reads the first two numbers of versions such as "v2.1.4-k3s1" and "1.33.0".
func (v Runtime) isSince(name string, major, minor int) bool {
	x, rest, _ := strings.Cut(strings.TrimPrefix(v.Version, "v"), ".")
	y, _, _ := strings.Cut(rest, ".")
	first, errFirst := strconv.Atoi(x)
	second, errSecond := strconv.Atoi(y)
	isKnown := v.Name == name && errFirst == nil && errSecond == nil && first > 0 // a build without a version reports 0.0.0
	return isKnown && (first > major || first == major && second >= minor)
}
