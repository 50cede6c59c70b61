// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is what the runtime says of itself.
type Version struct{ Name, Version string }

// Version returns the name and the version of the runtime.
func (c *Client) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return Version{}, c.failed("asking the runtime for its version", err)
	}
	return Version{answer.RuntimeName, answer.RuntimeVersion}, nil
}

// The runtimes whose versions are known here.
const (
	containerd = "containerd"
	crio       = "cri-o"
)

// IsCRIO reports whether the runtime is CRI-O.
func (v Version) IsCRIO() bool { return v.Name == crio }

// IgnoresDropIns reports whether the runtime is known to load no plugin from the
// directory next to a conflist, which takes libcni 1.3. It reports false for a runtime
// or a version that is not known here.
func (v Version) IgnoresDropIns() bool {
	return v.isBefore(containerd, 2, 1) || v.isBefore(crio, 1, 33)
}

// sendsToAll reports whether each listener receives all events. Before these
// versions a listener takes them from the kubelet, with which pods would hang:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func (v Version) sendsToAll() bool {
	_, _, known := v.number()
	return known && (v.Name == containerd && !v.isBefore(containerd, 2, 0) || v.IsCRIO() && !v.isBefore(crio, 1, 30))
}

func (v Version) isBefore(name string, major, minor int) bool {
	x, y, known := v.number()
	return known && v.Name == name && (x < major || x == major && y < minor)
}

// number returns the first two numbers of versions such as "v2.1.4-k3s1" and "1.33.0".
func (v Version) number() (major, minor int, known bool) {
	x, rest, _ := strings.Cut(strings.TrimPrefix(v.Version, "v"), ".")
	y, _, _ := strings.Cut(rest, ".")
	major, errMajor := strconv.Atoi(x)
	minor, errMinor := strconv.Atoi(y)
	return major, minor, errMajor == nil && errMinor == nil && major > 0 // 0.0.0 is a build without a version
}
