// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"path"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// shimPrefix begins the names of containerd's shims, where a type is a path.
const shimPrefix = "containerd-shim-"

// isolatingRuntime returns the name of an OCI runtime that keeps a network stack of its
// own, "" for any other. containerd reports the type of the shim, like
// io.containerd.kata.v2, and for a shim that runs programs like runc, the
// program. CRI-O reports only the handler's name, which the operator chose.
func isolatingRuntime(runtime cri.OCIRuntime) string {
	if runtime.Type == "" {
		return isolatingName(runtime.Handler)
	}
	if name := isolatingName(path.Base(runtime.Program)); name != "" {
		return name
	}
	return isolatingName(runtime.Type)
}

// isolatingName returns the name if one of its parts begins with the name of an
// isolating runtime, else "".
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

// checkIsolated is about a pod whose traffic bypasses the node's kernel. Neither a
// repair nor an eviction would change that.
func (w *watched) checkIsolated(answer *lookup.Answer, meshes []config.MeshName) report.Finding {
	if answer != nil {
		w.desired = newDesired(answer, capture.Exclusion(asCreated(answer, w.sandbox), meshes))
	}
	if w.desired.exemption.Cause != "" {
		return finding(report.Exempt, w.desired.exemption.Message)
	}
	return finding(report.Uncaptured, "its runtime "+isolatingRuntime(w.sandbox.Runtime)+
		" has a network stack of its own, whose traffic bypasses the rules: "+
		"use another runtime class, or remove the pod from the mesh")
}

// isMissing reports whether the pod lacks the desired rules, and a repair or an
// eviction would change that.
func (w *watched) isMissing() bool {
	return isolatingRuntime(w.sandbox.Runtime) == "" && lacksRules(w.finding.Code)
}
