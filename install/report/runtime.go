// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"
)

// Runtime is a container runtime, as it names itself.
type Runtime struct{ Name, Version string }

// The runtimes whose versions are known here.
const (
	containerd = "containerd"
	crio       = "cri-o"
)

// IsCRIO reports whether the runtime is CRI-O.
func (v Runtime) IsCRIO() bool { return v.Name == crio }

// IsContainerd reports whether the runtime is containerd.
func (v Runtime) IsContainerd() bool { return v.Name == containerd }

// ParseRuntime reads the form of a Node's status, such as "containerd://2.1.4".
func ParseRuntime(text string) Runtime {
	name, version, _ := strings.Cut(text, "://")
	return Runtime{name, version}
}

// LoadsDropIns reports whether the runtime is known to load plugins from the directory next
// to a conflist, which takes libcni 1.3.
func (v Runtime) LoadsDropIns() bool { return v.isSince(containerd, 2, 1) || v.isSince(crio, 1, 33) }

// IgnoresDropIns reports whether the runtime is known to load no plugin from that directory.
// It reports false for a runtime or a version that is not known here.
func (v Runtime) IgnoresDropIns() bool {
	return (v.isSince(containerd, 0, 0) || v.isSince(crio, 0, 0)) && !v.LoadsDropIns()
}

// PassesAnnotations reports whether the runtime passes a pod's annotations to plugins, and
// whether it is one that capture-cni knows.
func (v Runtime) PassesAnnotations() (passes, known bool) {
	return v.isSince(containerd, 1, 5) || v.isSince(crio, 1, 29), v.IsContainerd() || v.IsCRIO()
}

// SendsToAll reports whether each listener receives all events. Before these
// versions a listener takes them from the kubelet, with which pods would hang:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func (v Runtime) SendsToAll() bool { return v.isSince(containerd, 2, 0) || v.isSince(crio, 1, 30) }

// isSince reports whether the runtime has a name, and a version that is known and not older.
// It reads the first two numbers of versions such as "v2.1.4-k3s1" and "1.33.0".
func (v Runtime) isSince(name string, major, minor int) bool {
	x, rest, _ := strings.Cut(strings.TrimPrefix(v.Version, "v"), ".")
	y, _, _ := strings.Cut(rest, ".")
	first, errFirst := strconv.Atoi(x)
	second, errSecond := strconv.Atoi(y)
	isKnown := v.Name == name && errFirst == nil && errSecond == nil && first > 0 // 0.0.0 is a build without a version
	return isKnown && (first > major || first == major && second >= minor)
}
