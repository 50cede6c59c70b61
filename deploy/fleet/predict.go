// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/manifest"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// someAddress stands for any address of a pod, because only its IP family matters.
var someAddress = netip.MustParseAddr("192.0.2.1")

// Predict returns the decision that the plugin would make about a pod from a file. It assumes that the
// pod has only an IPv4 address.
func Predict(pod manifest.Pod, conf config.NetConf) (found report.Findings) {
	add := func(severity report.Severity, code report.Code, reason string) {
		found = append(found, report.Finding{Code: code, Severity: severity, Subject: pod.Owner, Reason: reason, Next: code.Advice()})
	}
	fields := podfields.Of(pod.Pod)
	decision, err := capture.Decide(fields, conf.Capture)
	if err == nil {
		decision, err = decision.At([]netip.Addr{someAddress}, nil)
	}
	outside := capture.ExemptionOf(fields, conf.Capture.Meshes).Cause == capture.NotInjected
	code, cause := whyNotInMesh(pod.Pod)
	switch {
	case pod.Spec.HostNetwork:
		add(report.Note, code, cause)
		return found
	case conf.ExcludesNamespace(pod.Namespace):
		add(report.Note, report.NamespaceExcluded, "excludeNamespaces has its namespace")
		return found
	case outside && code == report.NotInjected && !pod.Created:
		add(report.NotKnown, code, "it is not injected yet, and only the cluster knows whether its injector will change it")
		found[0].Next = "check what the injector returns, such as the output of istioctl kube-inject -f FILE, linkerd inject --manual FILE " +
			"or, of a pod, kubectl apply --dry-run=server -o yaml -f FILE"
	case err != nil:
		reason := capture.ReasonRefused
		if _, isInput := errors.AsType[capture.BadInput](err); isInput {
			reason = capture.ReasonAnnotations
		}
		add(report.Problem, report.CodeOfAdd(reason), "its ADD would fail: "+err.Error())
	case outside:
		add(report.Note, code, cause)
	case decision.Exemption.Cause != "":
		add(report.Note, report.Code(decision.Exemption.Cause), decision.Exemption.Message)
	default:
		add(report.OK, report.Captured, "its rules would be those of the mesh "+string(decision.Intent.Mesh))
	}
	for _, warning := range decision.Warnings {
		add(report.Warning, report.AddWarned, warning)
	}
	return found
}
