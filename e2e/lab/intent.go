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

// Decide is capture.Decide for a pod whose addresses are known; a pod that is not
// captured is an error.
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
