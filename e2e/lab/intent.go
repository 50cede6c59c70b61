// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// Decide calls capture.Decide for a pod with these addresses. It returns an error for a pod that is not
// captured.
func Decide(pod *corev1.Pod, settings config.Settings, addresses ...netip.Addr) (capture.Decision, error) {
	decision, err := capture.Decide(podfields.Of(pod), settings)
	if err == nil && decision.Exemption.Cause != "" {
		err = errors.New("the pod is not captured: " + decision.Exemption.Message)
	}
	if err != nil {
		return decision, err
	}
	return decision.At(addresses, nil)
}
