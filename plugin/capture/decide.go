// SPDX-License-Identifier: Apache-2.0

// Package capture decides what a pod's traffic capture should be and spells it
// out as data: PodOf reads what of a pod decides, Decide turns that into an Intent,
// Rules turns an Intent into a Ruleset. It is pure: it reads no file, no kernel and no API.
package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Ports that Istio's proxy serves itself; they are never captured inbound.
var proxyPorts = [...]uint16{15020, 15021, 15090}

// defaultExcludedOutboundPort is exempt where a pod says nothing else.
const defaultExcludedOutboundPort = 15020

// Decision is what becomes of a pod: it has an Exemption, or it is captured as
// its Intent says.
type Decision struct {
	Exemption Exemption
	Intent    Intent

	// Warnings are for the operator, those that matter most first; they change
	// nothing, and come with an error, too.
	Warnings []string
}

// Decide decides whether and how a pod is captured. addresses returns those of
// its network namespace, and is called only for a pod that is not exempt. The error
// is BadInput, naming every fault, a Refusal, or the one that addresses returned.
func Decide(pod Pod, settings config.Settings, addresses func() ([]netip.Addr, error)) (Decision, error) {
	if exemption := Exclusion(pod); exemption.Cause != "" {
		return Decision{Exemption: exemption}, nil
	}
	own, err := addresses()
	if err != nil {
		return Decision{}, err
	}
	d := decider{pod: pod, proxy: pod.container(containerProxy), settings: settings}
	intent := d.fromMesh()
	d.fromAnnotations(&intent)
	d.fromEnvironment(&intent)
	d.proxyIdentity(&intent)
	d.chooseFamilies(&intent, own)
	d.judgeRuntimeClass()
	d.warnEarlyContainers(&intent)
	d.warnUnknownAnnotations()
	if len(d.faults) > 0 {
		return Decision{Warnings: d.warnings}, d.faults
	}
	if len(d.refusals) > 0 {
		return Decision{Warnings: d.warnings}, Refusal(strings.Join(d.refusals, "\n"))
	}
	return Decision{Intent: intent, Warnings: d.warnings}, nil
}

// decider gathers what one Decide finds on its way.
type decider struct {
	pod      Pod
	proxy    *Container
	settings config.Settings

	faults   BadInput
	refusals []string
	warnings []string
	elements int // of the lists that were read so far
}

func (d *decider) refuse(format string, args ...any) {
	d.refusals = append(d.refusals, fmt.Sprintf(format, args...))
}

func (d *decider) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

func (d *decider) fromMesh() Intent {
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

func (d *decider) fromAnnotations(in *Intent) {
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

// selectionOf reads an annotation of the form "*" or a list; absent means "*".
func selectionOf[T any](d *decider, key string, parse parser[T]) Selection[T] {
	text, ok := d.pod.Annotations[key]
	if !ok {
		return Everything[T]()
	}
	if !d.withinLimits(key, text) {
		return Selection[T]{}
	}
	selection, err := parseSelection(text, parse)
	if err != nil {
		d.faults = append(d.faults, Fault{key, text, err.Error()})
	}
	return selection
}

// listOf reads an annotation that must be a list.
func listOf[T any](d *decider, key, absent string, parse parser[T]) []T {
	text, ok := d.pod.Annotations[key]
	if !ok {
		text = absent
	} else if !d.withinLimits(key, text) {
		return nil
	}
	list, err := parseList(text, parse)
	if err != nil {
		d.faults = append(d.faults, Fault{key, text, err.Error()})
	}
	return list
}

func (d *decider) fromEnvironment(in *Intent) {
	in.DropInvalid = d.switchOf(envDropInvalid)
	in.CaptureDNS = d.switchOf(envDNSCapture)
}

// switchOf reads a boolean of the proxy's environment. Istio takes what is no
// boolean for false; so do we, and say it.
func (d *decider) switchOf(name string) bool {
	text, ok := d.proxy.Env[name]
	if !ok {
		return false
	}
	value, err := strconv.ParseBool(text)
	if text == "" {
		d.warn("%s of container %s is empty, or comes from elsewhere and is not known: taken for false", name, containerProxy)
	} else if err != nil {
		d.warn("%s of container %s is %s, not a boolean: taken for false", name, containerProxy, config.Quoted(text))
	}
	return value
}

// chooseFamilies decides on IPv6; see config.IPv6Policy.
func (d *decider) chooseFamilies(in *Intent, addresses []netip.Addr) {
	has4, has6 := usable(addresses)
	dualStack := d.switchOf(envDualStack)
	switch policy := d.settings.IPv6; {
	case !has4 && !has6:
		d.refuse("the pod has no usable address: capture-cni must stand after the interface plugin in the chain")
	case policy == config.IPv6Never && !has4:
		d.refuse(`the pod has IPv6 addresses only and the configuration says "ipv6": "never": it would run uncaptured`)
	case policy == config.IPv6Always:
		in.IPv6 = true
	case policy == config.IPv6Mesh:
		in.IPv6 = !has4 || dualStack // whether or not there is an IPv6 address yet: one may come later
	}
	if has6 && !in.IPv6 {
		d.warn("IPv6 is left uncaptured: the pod has an IPv6 address, %s is not true and \"ipv6\" is %q",
			envDualStack, d.settings.IPv6)
	}
}

// usable tells the families in which others can reach the pod.
func usable(addresses []netip.Addr) (has4, has6 bool) {
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
