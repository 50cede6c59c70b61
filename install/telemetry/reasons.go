// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// ofAdds are the verdicts of ADDs.
func ofAdds() []record.Verdict {
	return []record.Verdict{record.Captured, record.Passed, record.Failed}
}

// Reasons are all of them, by verdict.
func Reasons(verdict record.Verdict) []record.Reason {
	switch verdict {
	case record.Passed:
		reasons := []record.Reason{record.NotKubernetes, record.NamespaceExcluded, record.StaticPod, record.NotInjected}
		for _, cause := range report.MeshedExemptions() {
			reasons = append(reasons, record.Exempt(cause))
		}
		return reasons
	case record.Failed:
		return []record.Reason{record.Input, record.Configuration, record.Lookup, record.Annotations, record.Refused, record.Gone, record.Kernel}
	case record.Captured:
		return []record.Reason{""}
	case Repaired, EvictionRequested:
		return []record.Reason{Uncaptured, Drifted}
	case Found:
		return []record.Reason{Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater}
	}
	return nil
}
