// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// installCapture applies from inside the pod the rules that the plugin applies
// from outside, as istio-init does.
func installCapture(ctx context.Context) error {
	pod := capture.Pod{
		Annotations: map[string]string{"sidecar.istio.io/status": ""},
		Containers:  []capture.Container{{Name: "istio-proxy"}},
	}
	decision, err := capture.Decide(pod, config.DefaultSettings())
	if err != nil {
		return err
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	if decision, err = decision.At(own, nil); err != nil {
		return err
	}
	return nftables.Backend{}.Apply(ctx, decision.Rules)
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
