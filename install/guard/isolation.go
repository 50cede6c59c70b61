// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// shimPrefix begins the names of containerd's shims, where a type is a path.
const shimPrefix = "containerd-shim-"

// isolatedBy returns the name of an OCI runtime that keeps a network stack of its
// own, "" for any other. containerd reports the type of the shim, like
// io.containerd.kata.v2, and for a shim that runs programs like runc, the
// program. CRI-O reports the handler's name alone, which is the operator's choice.
func isolatedBy(runtime cri.OCIRuntime) string {
	if runtime.Type == "" {
		return isolatingName(runtime.Handler)
	}
	if name := isolatingName(path.Base(runtime.Program)); name != "" {
		return name
	}
	return isolatingName(runtime.Type)
}

// isolatingName returns the name if one of its parts begins like a sandbox's.
func isolatingName(name string) string {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '.' || r == '_' || r == '/' })
	for _, part := range parts {
		part = strings.TrimPrefix(part, shimPrefix)
		if slices.ContainsFunc(capture.SandboxPrefixes(), func(start string) bool { return strings.HasPrefix(part, start) }) {
			return name
		}
	}
	return ""
}

// judgeIsolated is for a sandbox whose traffic no rule of the node's kernel
// sees. Neither a repair nor another pod in its place would change that.
func (w *watched) judgeIsolated(now *corev1.Pod) Finding {
	if now != nil {
		w.wish = wish{read: time.Now(), exemption: capture.Exclusion(asMade(now, w.sandbox)), owned: isOwned(now)}
	}
	if w.wish.exemption.Cause != "" {
		return Finding{State: Exempt, Reason: w.wish.exemption.Message}
	}
	return Finding{State: Uncaptured, Reason: "its runtime " + isolatedBy(w.sandbox.Runtime) + " keeps a network stack of its own, which the node's rules don't reach: use another runtime class, or take the pod out of the mesh"}
}

// isMissing reports whether the pod lacks its rules, and a repair or an eviction
// would change that.
func (w *watched) isMissing() bool {
	return isolatedBy(w.sandbox.Runtime) == "" && w.finding.isMissing()
}
