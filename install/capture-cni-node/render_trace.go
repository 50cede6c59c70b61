// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// traceManifest prints which rule of a pod that a manifest describes decides about a
// packet.
func traceManifest(out io.Writer, conf config.NetConf, manifest string, addresses []string, flags packetFlags) error {
	packet, packetErr := flags.packet()
	own, addressErr := parseAddresses(addresses)
	if err := errors.Join(packetErr, addressErr); err != nil {
		return err
	}
	decision, err := decideManifest(conf, manifest, addresses)
	if err != nil {
		return err
	}
	for _, warning := range decision.Warnings {
		if _, err := fmt.Fprintf(out, "warning      %s\n", warning); err != nil {
			return err
		}
	}
	if exemption := decision.Exemption; exemption.Cause != "" {
		_, err := fmt.Fprintf(out, "verdict      passes: the pod is not captured\nbecause      %s\n", exemption.Message)
		return err
	}
	rules := capture.Rules(decision.Intent)
	if packet.Interface == "" {
		packet.Interface = usualInterface(rules, packet, own)
	}
	_, err = io.WriteString(out, trace.Of(rules, packet).Text("no other program changes or drops the packet"))
	return err
}

// usualInterface returns the interface that a packet takes in a pod with one
// interface and one default route.
func usualInterface(rules capture.Ruleset, p trace.Packet, own []netip.Addr) string {
	to := p.To.Addr()
	isLocal := to.IsLoopback() || slices.Contains(own, to)
	isRoutedHere := p.Mark != 0 && p.Mark == rules.LocalMark && (to.Is4() || rules.IPv6 == capture.Captured)
	if !p.Inbound && (isLocal || isRoutedHere) {
		return "lo"
	}
	return "eth0"
}
