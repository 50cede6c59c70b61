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

// shimPrefix begins the names of containerd's shims. A runtime's type contains it if the type is the
// path of a shim.
const shimPrefix = "containerd-shim-"

// isolatingRuntime returns the name of an OCI runtime that, as its name shows, has a network stack of
// its own, or "" for any other runtime. containerd reports the type of the shim, such as
// io.containerd.kata.v2, and the program that the shim's options name, such as runc. CRI-O reports only
// the name of the handler, which the operator chose, and no name for the default handler.
func isolatingRuntime(runtime cri.OCIRuntime) string {
	if runtime.Type == "" {
		return isolatingName(runtime.Handler)
	}
	if name := isolatingName(path.Base(runtime.Program)); name != "" {
		return name
	}
	return isolatingName(runtime.Type)
}

// isolatingName returns the name if one of its parts begins with the name of an isolating runtime, and
// "" if none does.
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

// checkIsolated returns the finding for a pod whose runtime has a network stack of its own: exempt or
// uncaptured. The guard neither repairs nor evicts such a pod, because that would not help.
func (w *watched) checkIsolated(answer *lookup.Answer, meshes []config.MeshName) report.Finding {
	if answer != nil {
		w.desired = newDesired(answer, capture.ExemptionOf(asCreated(answer, w.sandbox), meshes))
	}
	if w.desired.exemption.Cause != "" {
		return finding(report.Exempt, w.desired.exemption.Message)
	}
	return finding(report.Uncaptured, "its runtime "+isolatingRuntime(w.sandbox.Runtime)+
		" has a network stack of its own, whose traffic bypasses the rules: "+
		"use another runtime class, or remove the pod from the mesh")
}
