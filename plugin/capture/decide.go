// SPDX-License-Identifier: Apache-2.0

// Package capture decides how a pod's traffic is captured. Decide turns a Pod, the
// fields that decide, into an Intent; Rules turns an Intent into a Ruleset. It is pure:
// it reads no file, no kernel and no API, and links none of Kubernetes' packages.
package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// proxyPorts are served by Istio's proxy itself and never captured inbound.
var proxyPorts = [...]uint16{15020, 15021, 15090}

// defaultExcludedOutboundPort is the default of excludeOutboundPorts.
const defaultExcludedOutboundPort = 15020

// Decision is an Exemption, or the Intent of a pod that is captured.
type Decision struct {
	Exemption Exemption
	Intent    Intent

	// Warnings are for the operator, the most important first. They are also set
	// with an error.
	Warnings []string
	Notes    []string // on what the mesh's settings choose for every such pod
}

// Decide decides whether and how a pod is captured. It calls addresses, for those of
// the network namespace, only if the pod is not exempt. The error is BadInput with
// every fault, a Refusal, or the error of addresses.
func Decide(pod Pod, settings config.Settings, addresses func() ([]netip.Addr, error)) (Decision, error) {
	if exemption := Exclusion(pod); exemption.Cause != "" {
		return Decision{Exemption: exemption}, nil
	}
	own, err := addresses()
	if err != nil {
		return Decision{}, err
	}
	d := decider{pod: pod, proxy: pod.container(containerProxy), settings: settings}
	intent := d.meshDefaults()
	d.readAnnotations(&intent)
	d.readEnvironment(&intent)
	d.setProxyIdentity(&intent)
	d.chooseFamilies(&intent, own)
	d.checkRuntimeClass()
	d.warnEarlyContainers(&intent)
	d.warnUnknownAnnotations()
	if len(d.faults) > 0 {
		return Decision{Warnings: d.warnings}, d.faults
	}
	if len(d.refusals) > 0 {
		return Decision{Warnings: d.warnings}, Refusal(strings.Join(d.refusals, "\n"))
	}
	return Decision{Intent: intent, Warnings: d.warnings, Notes: d.notes}, nil
}

// decider holds the state of one Decide.
type decider struct {
	pod      Pod
	proxy    *Container
	settings config.Settings

	faults   BadInput
	refusals []string
	warnings []string
	notes    []string
	elements int // of all lists read so far
}

func (d *decider) refuse(format string, args ...any) {
	d.refusals = append(d.refusals, fmt.Sprintf(format, args...))
}

func (d *decider) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

func (d *decider) meshDefaults() Intent {
	mesh := d.settings.Mesh
	return Intent{
		OutboundPort:       mesh.OutboundPort,
		InboundPort:        mesh.InboundPort,
		TunnelPort:         mesh.TunnelPort,
		DNSPort:            mesh.DNSPort,
		LoopbackCIDR:       mesh.LoopbackCIDR,
		OwnerGroups:        unique(mesh.OutboundOwnerGroups...),
		ExcludeOwnerGroups: unique(mesh.OutboundOwnerGroupsExclude...),
	}
}

func (d *decider) readAnnotations(in *Intent) {
	mesh := d.settings.Mesh
	switch mode, ok := d.pod.Annotations[annotationInterceptionMode]; {
	case !ok || mode == modeRedirect:
	case mode == modeTProxy:
		in.Transparent = true
	default:
		d.faults = append(d.faults, Fault{annotationInterceptionMode, mode, "expected REDIRECT, TPROXY or NONE"})
	}

	in.InboundPorts = selectionOf(d, annotationIncludeInboundPorts, config.ParsePort)
	in.InboundPorts.Only = unique(in.InboundPorts.Only...)
	in.ExcludeInboundPorts = unique(slices.Concat(
		proxyPorts[:], mesh.ExcludeInboundPorts, listOf(d, annotationExcludeInboundPorts, "", config.ParsePort))...)

	in.IncludeOutboundPorts = unique(listOf(d, annotationIncludeOutboundPorts, "", config.ParsePort)...)
	in.ExcludeOutboundPorts = unique(slices.Concat(
		mesh.ExcludeOutboundPorts,
		listOf(d, annotationExcludeOutboundPorts, strconv.Itoa(defaultExcludedOutboundPort), config.ParsePort))...)

	in.OutboundRanges = selectionOf(d, annotationIncludeOutboundRanges, config.ParsePrefix)
	in.CaptureLoopback = slices.ContainsFunc(in.OutboundRanges.Only, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
	in.OutboundRanges.Only = disjoint(in.OutboundRanges.Only)
	in.ExcludeOutboundRanges = disjoint(slices.Concat(
		mesh.ExcludeOutboundIPRanges, listOf(d, annotationExcludeOutboundRanges, "", config.ParsePrefix)))

	in.ExcludeInterfaces = unique(listOf(d, annotationExcludeInterfaces, "", config.ParseInterface)...)
	reroute := annotationKubevirtInterfaces
	if _, ok := d.pod.Annotations[annotationRerouteInterfaces]; ok {
		reroute = annotationRerouteInterfaces
	}
	in.RerouteInterfaces = unique(listOf(d, reroute, "", config.ParseInterface)...)
}

func (d *decider) readEnvironment(in *Intent) {
	in.DropInvalid = d.boolEnv(envDropInvalid)
	in.CaptureDNS = d.boolEnv(envDNSCapture)
}

// boolEnv reads a boolean from the proxy's environment. A value that is not a boolean
// is false, as in Istio, with a warning.
func (d *decider) boolEnv(name string) bool {
	text, ok := d.proxy.Env[name]
	if !ok {
		return false
	}
	value, err := strconv.ParseBool(text)
	if text == "" {
		d.warn("%s of container %s is empty, or set by valueFrom, which capture-cni can't read: using false", name, containerProxy)
	} else if err != nil {
		d.warn("%s of container %s is %s: expected a boolean, using false", name, containerProxy, config.Quoted(text))
	}
	return value
}

// chooseFamilies decides on IPv6; see config.IPv6Policy.
func (d *decider) chooseFamilies(in *Intent, addresses []netip.Addr) {
	has4, has6 := usableFamilies(addresses)
	dualStack, policy := d.boolEnv(envDualStack), d.settings.IPv6
	switch {
	case !has4 && !has6:
		d.refuse("the pod has no usable address: capture-cni must be after the interface plugin in the chain")
	case policy == config.IPv6Never && !has4:
		d.refuse(`the pod has IPv6 addresses only and the configuration says "ipv6": "never": it would run uncaptured`)
	case !has4, policy == config.IPv6Always && has6, policy != config.IPv6Never && dualStack:
		in.IPv6 = Captured // under dual stack even without an IPv6 address: one may be added later
	case !has6:
		// Redirected IPv6 could reach the application: the proxy may listen on 0.0.0.0 alone.
		in.IPv6 = Refused
	default:
		d.notes = append(d.notes, fmt.Sprintf("IPv6 is left uncaptured: the pod has an IPv6 address, %s is not true and \"ipv6\" is %q", envDualStack, policy))
	}
}

// usableFamilies reports the families of the addresses that other hosts can reach.
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

func (d *decider) warnUnknownAnnotations() {
	var unknown []string
	for key := range d.pod.Annotations {
		if !isKnownAnnotation(key) {
			unknown = append(unknown, fmt.Sprintf("annotation %s is not known and has no effect", key))
		}
	}
	slices.Sort(unknown)
	d.warnings = append(d.warnings, config.Few(unknown, "annotations are not known and have no effect")...)
}
