// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// installCapture applies from inside the pod the rules that the plugin applies
// from outside, as istio-init does.
func installCapture(ctx context.Context) error {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy"}}}}
	addresses, err := ownAddresses()
	if err != nil {
		return err
	}
	intent, _, err := capture.Decide(pod, config.DefaultSettings(), addresses)
	if err != nil {
		return err
	}
	return netfilter.NFTables{}.Apply(ctx, capture.Rules(intent))
}

func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, fmt.Errorf("reading an address: %w", err)
		}
		if !prefix.Addr().IsLoopback() {
			own = append(own, prefix.Addr())
		}
	}
	return own, nil
}
