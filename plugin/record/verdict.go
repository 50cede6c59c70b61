// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Verdict is the result for the pod. The guard's own are in install/telemetry.
type Verdict string

const (
	Captured Verdict = "captured"
	Passed   Verdict = "passed" // not captured, by intention
	Failed   Verdict = "failed"
)

// Reason is why a pod was not captured, what failed or what was found. There are
// few of them.
type Reason string

const (
	NotKubernetes     Reason = "not a Kubernetes pod"
	NamespaceExcluded Reason = "the namespace is excluded"
	StaticPod         Reason = "static pod"
	NotInjected       Reason = "not injected"

	Input         Reason = "input" // stdin or CNI_ARGS
	Configuration Reason = "configuration"
	Lookup        Reason = "lookup"
	Annotations   Reason = "annotations"
	Refused       Reason = "refused"
	Gone          Reason = "gone" // the network namespace
	Kernel        Reason = "kernel"
)

// ExemptPrefix begins the reasons of pods in the mesh that are not captured.
const ExemptPrefix = "exempt_"

// Exempt returns the reason of a pod in the mesh that is not captured.
func Exempt(cause capture.ExemptionCause) Reason { return ExemptPrefix + Reason(cause) }

// Stage is a part of an ADD.
type Stage string

const (
	Deciding   Stage = "decide"
	LookingUp  Stage = "lookup"
	Committing Stage = "apply"
)
