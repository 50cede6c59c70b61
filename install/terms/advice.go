// SPDX-License-Identifier: Apache-2.0

package terms

import "github.com/capture-cni/capture-cni/plugin/capture"

// Advice returns the next step for a pod of this state that was examined a moment ago, ""
// where it depends on more than the state.
func (s State) Advice() string {
	switch s {
	case Captured:
		return "none"
	case Uncaptured, Drifted:
		return "with guard.policy=inPlace the guard repairs it; else restart the pod. If the state returns: find out which process changes the rules"
	case InjectedLater:
		return "delete the pod: the next one is captured; the API server's audit log says who edited it"
	case Outdated, Changed:
		return "restart the pod when it suits you"
	case Foreign:
		return "restart the pod once the other plugin is gone"
	case Obstructed:
		return "remove NET_ADMIN from the container that adds the table"
	case Unknown:
		return "run this again in a minute; if the state stays: kubectl capture-cni status"
	}
	return ""
}

// AdviceFor returns the next step for an exempt pod.
func AdviceFor(cause capture.ExemptionCause) string {
	switch cause {
	case capture.InitContainer:
		return "its istio-init captures it: let istiod inject without it (pilot.cni.enabled=true), and restart the pod"
	case capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType:
		return "none, if the pod has no sidecar on purpose"
	case capture.InjectFalse, capture.InterceptionNone:
		return "none, if it is on purpose; else correct its label or annotation"
	case capture.NamespaceExcluded:
		return "none, if its namespace is in excludeNamespaces on purpose"
	}
	return ""
}
