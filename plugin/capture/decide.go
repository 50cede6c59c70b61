// SPDX-License-Identifier: Apache-2.0

// Package capture decides how a pod's traffic is captured. Decide converts a Pod to an Intent, and
// Rules converts an Intent to a Ruleset. The package reads no file, no kernel state and no API, and
// links no Kubernetes packages.
package capture

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Decision is an Exemption, or the Intent and the Rules of a pod that is captured.
type Decision struct {
	Exemption Exemption
	Intent    Intent
	Rules     Ruleset // rules of the Intent; empty until At has added the addresses

	// Warnings are for the operator. They are set even with an error.
	Warnings []string
	Notes    []string // like Warnings, but about decisions that the settings make for every similar pod

	pod      Pod
	policy   config.IPv6Policy
	families families
}

// Decide decides whether and how a pod is captured, before its addresses are known. The error is a
// BadInput or a Refusal.
func Decide(pod Pod, settings config.Settings) (Decision, error) {
	chosen, second := choose(pod, settings.Meshes)
	switch exemption := ExemptionOf(pod, settings.Meshes); {
	case exemption.Cause != "" && Fenced(pod.Annotations):
		return Decision{}, Refusal(fmt.Sprintf("%s needs a mesh that captures the pod: %s", annotationFence, exemption.Message))
	case exemption.Cause != "":
		return Decision{Exemption: exemption}, nil
	}
	// A pod without a mesh, or without its mesh's proxy, is exempt. So neither chosen nor the result of
	// proxyOf is nil here.
	if second != nil {
		return Decision{}, Refusal(fmt.Sprintf("the pod has keys of %s and of %s, and only one mesh's proxy can get its traffic: "+
			"remove one mesh's annotations", chosen.name, second.name))
	}
	proxy := *chosen.proxyOf(pod)
	d := decider{mesh: chosen, pod: pod, proxy: &proxy, settings: settings}
	d.onlyOwnIDs = Fenced(pod.Annotations)
	d.checkRuntimeClass()
	intent := chosen.read(&d)
	d.readFence(&intent)
	if len(intent.Exempt) > maxExempt {
		d.fault(chosen.whole, pod.Annotations[chosen.whole], "expected at most %d exemptions (one for each user and protocol), got %d",
			maxExempt, len(intent.Exempt))
	}
	if len(d.faults) > 0 {
		return Decision{Warnings: d.warnings}, d.faults
	}
	if len(d.refusals) > 0 {
		return Decision{Warnings: d.warnings}, Refusal(strings.Join(d.refusals, "\n"))
	}
	return Decision{Intent: intent, Warnings: d.warnings, pod: pod, policy: settings.IPv6, families: d.families}, nil
}

// At completes the decision with the addresses in the pod's network namespace. It needs the node's
// addresses only if HasOpenings returns true. The error is a Refusal, or BadInput if the rules exceed
// MaxExpanded.
func (d Decision) At(addresses, node []netip.Addr) (Decision, error) {
	if d.Exemption.Cause != "" {
		return d, nil
	}
	var refusal error
	if d.Intent.IPv6, d.Notes, refusal = d.families.treatIPv6(d.policy, addresses); refusal != nil {
		return d, refusal
	}
	d.Intent.Fence = d.Intent.Fence.close(node)
	d.Rules = Rules(d.Intent)
	return d, meshOf(d.Intent.Mesh).checkExpansion(d.pod, d.Rules)
}

// HasOpenings reports whether the pod has a fence with exceptions.
func (d Decision) HasOpenings() bool {
	return d.Intent.Fence != nil && len(d.Intent.Fence.Openings) > 0
}

type decider struct {
	mesh     *mesh
	pod      Pod
	proxy    *Container
	settings config.Settings

	onlyOwnIDs bool     // no other container may have the proxy's ids, whatever the settings say
	families   families // families of addresses that the proxy expects

	faults   BadInput
	refusals []string
	warnings []string
	elements int // number of elements in all lists read so far
}

func (d *decider) refuse(format string, args ...any) {
	d.refusals = append(d.refusals, fmt.Sprintf(format, args...))
}

func (d *decider) fault(key, value, format string, args ...any) {
	d.faults = append(d.faults, Fault{Key: key, Value: value, Problem: fmt.Sprintf(format, args...)})
}

// keyFault adds a fault about a key that has no value, or whose value does not matter.
func (d *decider) keyFault(key, problem string) {
	d.faults = append(d.faults, Fault{Key: key, Problem: problem, noValue: true})
}

func (d *decider) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

// families says which IP families a proxy expects. IPv4 is always captured.
type families struct {
	dualStack bool   // the proxy expects IPv6 even without an IPv6 address, because one may be added later
	ifPresent bool   // the proxy expects IPv6 if the pod has an IPv6 address
	otherwise string // says why the proxy does not expect both families
}

// treatIPv6 decides how the rules treat IPv6, from the operator's policy and the pod's addresses. It
// returns a Refusal if the pod would run uncaptured or has no usable address. See config.IPv6Policy.
func (f families) treatIPv6(policy config.IPv6Policy, addresses []netip.Addr) (ipv6 Treatment, notes []string, refusal error) {
	has4, has6 := usableFamilies(addresses)
	switch {
	case !has4 && !has6:
		return "", nil, Refusal("the pod has no usable address: capture-cni must be after the interface plugin in the chain")
	case policy == config.IPv6Never && !has4:
		return "", nil, Refusal(`the pod has IPv6 addresses only and the configuration says "ipv6": "never": it would run uncaptured`)
	case !has4, policy == config.IPv6Always && has6, policy != config.IPv6Never && (f.dualStack || f.ifPresent && has6):
		return Captured, nil, nil
	case !has6:
		// The rules refuse IPv6 instead of capturing it, because the proxy may listen only on 0.0.0.0.
		// Another process could then listen at the proxy's port over IPv6, and get redirected
		// connections.
		return Refused, nil, nil
	default:
		if policy == config.IPv6Never { // whatever the proxy expects
			f.otherwise = ""
		}
		return Ignored, []string{fmt.Sprintf("IPv6 is left uncaptured: the pod has an IPv6 address%s and \"ipv6\" is %q",
			f.otherwise, policy)}, nil
	}
}

// usableFamilies reports which IP families have an address that other hosts can reach.
func usableFamilies(addresses []netip.Addr) (has4, has6 bool) {
	for _, a := range addresses {
		switch a = a.Unmap(); {
		case a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified():
		case a.Is4():
			has4 = true
		default:
			has6 = true
		}
	}
	return has4, has6
}
