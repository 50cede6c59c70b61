// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

func ofAdds() []record.Verdict {
	return []record.Verdict{record.Captured, record.Passed, record.Failed}
}

// Reasons returns all reasons that records with this verdict can have.
func Reasons(verdict record.Verdict) []capture.Reason {
	switch verdict {
	case record.Passed:
		reasons := []capture.Reason{
			capture.ReasonNotKubernetes, capture.ReasonNamespaceExcluded, capture.ReasonStaticPod, capture.ReasonNotInjected,
		}
		for _, cause := range report.MeshedExemptions() {
			reasons = append(reasons, capture.ExemptReason(cause))
		}
		return reasons
	case record.Failed:
		return []capture.Reason{
			capture.ReasonInput, capture.ReasonConfiguration, capture.ReasonLookup, capture.ReasonAnnotations,
			capture.ReasonRefused, capture.ReasonGone, capture.ReasonKernel,
		}
	case record.Captured:
		return []capture.Reason{""}
	case Repaired, EvictionRequested:
		return []capture.Reason{Uncaptured, Drifted}
	case Updated:
		return []capture.Reason{Outdated}
	case Found:
		return []capture.Reason{Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater}
	}
	return nil
}
