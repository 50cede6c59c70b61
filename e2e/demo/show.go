// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

func printLine(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func heading(format string, args ...any) {
	title := fmt.Sprintf(format, args...)
	fmt.Printf("\n%s\n%s\n", title, strings.Repeat("-", len(title)))
}

func showAnnotations(pod *corev1.Pod) {
	printLine("Its annotations:")
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		printLine("  %s: %q", key, pod.Annotations[key])
	}
}

func showTimes(p *pod) {
	for _, t := range p.times {
		printLine("%-12s took %6.1f ms", t.plugin, float64(t.took)/float64(time.Millisecond))
	}
	fmt.Println()
}

// showRules prints the ruleset as text, after a comparison of its stamp with the
// one in the namespace.
func showRules(n *node, p *pod, manifest *corev1.Pod) error {
	decision, err := capture.Decide(podfields.Of(manifest), config.DefaultSettings())
	if err != nil {
		return err
	}
	var addresses []netip.Addr
	for _, text := range p.addresses() {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address)
		}
	}
	var ofNode []netip.Addr
	err = n.host.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			ofNode = append(ofNode, netip.MustParsePrefix(a.String()).Addr())
		}
		return err
	})
	if err != nil {
		return err
	}
	if decision, err = decision.At(addresses, ofNode); err != nil {
		return err
	}
	if exemption := decision.Exemption; exemption.Cause != "" {
		printLine("None: %s.", exemption.Message)
		return nil
	}
	ruleset := decision.Rules
	err = p.Do(func() error {
		state, err := netfilter.Inspect(context.Background())
		if err == nil && state.Stamp != ruleset.Stamp() {
			err = errors.New("the stamp in the kernel is not that of the expected rules")
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Print(ruleset)
	return nil
}
