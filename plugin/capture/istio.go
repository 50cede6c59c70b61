// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/capture-cni/capture-cni/config"
)

// Annotations.
const (
	annotationStatus           = "sidecar.istio.io/status"
	annotationInject           = "sidecar.istio.io/inject" // also a label, which overrides the annotation
	annotationInterceptionMode = "sidecar.istio.io/interceptionMode"

	annotationTraffic               = "traffic.sidecar.istio.io/"
	annotationIncludeInboundPorts   = annotationTraffic + "includeInboundPorts"
	annotationExcludeInboundPorts   = annotationTraffic + "excludeInboundPorts"
	annotationIncludeOutboundPorts  = annotationTraffic + "includeOutboundPorts"
	annotationExcludeOutboundPorts  = annotationTraffic + "excludeOutboundPorts"
	annotationIncludeOutboundRanges = annotationTraffic + "includeOutboundIPRanges"
	annotationExcludeOutboundRanges = annotationTraffic + "excludeOutboundIPRanges"
	annotationExcludeInterfaces     = annotationTraffic + "excludeInterfaces"
	annotationKubevirtInterfaces    = annotationTraffic + "kubevirtInterfaces"
	annotationRerouteInterfaces     = "istio.io/reroute-virtual-interfaces" // if present, the annotation kubevirtInterfaces has no effect
)

// Containers.
const (
	containerProxy      = "istio-proxy"
	containerInit       = "istio-init"
	containerValidation = "istio-validation"
)

// Environment of the proxy container.
const (
	envDisableProxy = "DISABLE_ENVOY"
	envDNSCapture   = "ISTIO_META_DNS_CAPTURE"
	envDualStack    = "ISTIO_DUAL_STACK"
	envDropInvalid  = "INVALID_DROP"

	envDropInvalidMisspelt = "DROP_INVALID" // a misspelling that Istio's users write
)

// Interception modes.
const (
	modeRedirect = "REDIRECT"
	modeTProxy   = "TPROXY"
	modeNone     = "NONE"
)

// istio describes the annotations, labels and containers that Istio's injector and users of Istio
// write.
// https://istio.io/latest/docs/reference/config/annotations/
func istio() *mesh {
	return &mesh{
		name: config.Istio, mark: annotationStatus, container: containerProxy, init: containerInit, validation: containerValidation,
		exemption: istioExemption, annotations: istioAnnotations(), prefix: annotationTraffic,
		lists: map[string][]string{
			"exclude_interfaces": {annotationExcludeInterfaces}, "reroute_interfaces": {annotationRerouteInterfaces, annotationKubevirtInterfaces},
			"include_outbound_ranges": {annotationIncludeOutboundRanges}, "exclude_outbound_ranges": {annotationExcludeOutboundRanges},
		},
		exclusions: []string{
			annotationExcludeInboundPorts, annotationExcludeOutboundPorts, annotationExcludeOutboundRanges, annotationExcludeInterfaces,
		},
		inclusions: []string{annotationIncludeInboundPorts, annotationIncludeOutboundPorts, annotationIncludeOutboundRanges},
		variables:  []string{envDisableProxy, envDNSCapture, envDualStack, envDropInvalid, envDropInvalidMisspelt},
		label: func(labels, annotations map[string]string) {
			if value, ok := labels[annotationInject]; ok { // the label overrides the annotation
				annotations[annotationInject] = value
			}
		},
		read: readIstio, inbound: istioInbound, outbound: istioOutbound, callsOwnPod: true,
	}
}

func istioAnnotations() []Annotation {
	const (
		ports      = "`*` or ports"
		portList   = "ports"
		ranges     = "`*` or CIDRs"
		rangeList  = "CIDRs"
		interfaces = "interface names"
	)
	return []Annotation{
		{annotationStatus, "any", "absent", "marks injected pods"},
		{annotationInject, "boolean", "absent", "`false`: the pod is not captured; a label of this name takes precedence"},
		{
			annotationInterceptionMode, "`REDIRECT`, `TPROXY`, `NONE`", "`REDIRECT`",
			"`TPROXY` keeps the client's address on inbound connections; `NONE` captures nothing",
		},
		{annotationIncludeInboundPorts, ports, "`*`", "captured inbound TCP ports; empty: none; a list overrides every excluded port"},
		{
			annotationExcludeInboundPorts, portList, "empty",
			"inbound ports that `*` does not capture, in addition to 15020, 15021 and 15090",
		},
		{annotationIncludeOutboundPorts, portList, "empty", "outbound TCP ports that are captured even outside the included ranges"},
		{annotationExcludeOutboundPorts, portList, "`15020`", "uncaptured outbound TCP and UDP ports"},
		{annotationIncludeOutboundRanges, ranges, "`*`", "captured outbound destinations; empty: none"},
		{annotationExcludeOutboundRanges, rangeList, "empty", "uncaptured outbound destinations, except for DNS"},
		{annotationExcludeInterfaces, interfaces, "empty", "interfaces whose traffic is not captured"},
		{annotationRerouteInterfaces, interfaces, "empty", "interfaces of virtual machines, whose inbound traffic counts as outbound"},
		{annotationKubevirtInterfaces, interfaces, "empty", "older name of `istio.io/reroute-virtual-interfaces`, which takes precedence"},
	}
}

func istioExemption(pod Pod) Exemption {
	proxy := pod.container(containerProxy)
	if isBool(proxy.Env[envDisableProxy], true) {
		return Exemption{ProxyDisabled, envDisableProxy + " is true: gRPC without a proxy"}
	}
	if kind := proxy.ProxyType; kind != "" && kind != "sidecar" {
		return Exemption{OtherProxyType, "proxy type is " + kind + ", not sidecar"}
	}
	if isBool(pod.Annotations[annotationInject], false) {
		return Exemption{InjectFalse, annotationInject + " is false"}
	}
	if pod.Annotations[annotationInterceptionMode] == modeNone {
		return Exemption{InterceptionNone, annotationInterceptionMode + " is NONE"}
	}
	return Exemption{}
}

func isBool(text string, want bool) bool {
	value, err := strconv.ParseBool(text)
	return err == nil && value == want
}

// proxyPorts are ports at which Istio's proxy itself listens. Inbound connections to them are captured
// only if the pod lists them among its included ports.
var proxyPorts = [...]uint16{15020, 15021, 15090}

const defaultExcludedOutboundPort = 15020

func readIstio(d *decider) Intent {
	intent, settings := d.meshDefaults(), d.settings.Mesh
	d.readAnnotations(&intent)
	d.readEnvironment(&intent)
	intent.ProxyUID, intent.ProxyGID = d.proxyID("uid", Container.uid, settings.ProxyUID), d.proxyID("gid", Container.gid, settings.ProxyGID)
	d.checkUnknownIDs(intent.ProxyUID != settings.ProxyUID || intent.ProxyGID != settings.ProxyGID)
	d.checkGroups(intent.ProxyGID)
	d.families = families{dualStack: d.boolEnv(envDualStack), otherwise: ", " + envDualStack + " is not true"}
	d.warnEarlyContainers(&intent, containerInit, containerValidation)
	d.warnUnknownAnnotations()
	return intent
}

func (d *decider) meshDefaults() Intent {
	settings := d.settings.Mesh
	return Intent{
		Mesh:               config.Istio,
		OutboundPort:       settings.OutboundPort,
		InboundPort:        settings.InboundPort,
		TunnelPort:         settings.TunnelPort,
		DNSPort:            settings.DNSPort,
		LoopbackCIDR:       settings.LoopbackCIDR,
		OwnerGroups:        unique(settings.OutboundOwnerGroups...),
		ExcludeOwnerGroups: unique(settings.OutboundOwnerGroupsExclude...),
	}
}

func (d *decider) readAnnotations(in *Intent) {
	settings := d.settings.Mesh
	switch mode, ok := d.pod.Annotations[annotationInterceptionMode]; {
	case !ok || mode == modeRedirect:
	case mode == modeTProxy:
		in.Transparent = true
	default:
		d.fault(annotationInterceptionMode, mode, "expected REDIRECT, TPROXY or NONE")
	}

	in.InboundPorts = selectionOf(d, annotationIncludeInboundPorts, config.ParsePort)
	in.InboundPorts.Only = unique(in.InboundPorts.Only...)
	in.ExcludeInboundPorts = Ports(unique(slices.Concat(
		proxyPorts[:], settings.ExcludeInboundPorts, listOf(d, annotationExcludeInboundPorts, "", config.ParsePort))...)...)

	in.IncludeOutboundPorts = unique(listOf(d, annotationIncludeOutboundPorts, "", config.ParsePort)...)
	in.ExcludeOutboundPorts = Ports(unique(slices.Concat(
		settings.ExcludeOutboundPorts,
		listOf(d, annotationExcludeOutboundPorts, strconv.Itoa(defaultExcludedOutboundPort), config.ParsePort))...)...)

	in.OutboundRanges = selectionOf(d, annotationIncludeOutboundRanges, config.ParsePrefix)
	in.CaptureLoopback = slices.ContainsFunc(in.OutboundRanges.Only, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
	in.OutboundRanges.Only = disjoint(in.OutboundRanges.Only)
	in.ExcludeOutboundRanges = disjoint(slices.Concat(
		settings.ExcludeOutboundIPRanges, listOf(d, annotationExcludeOutboundRanges, "", config.ParsePrefix)))

	in.ExcludeInterfaces = unique(listOf(d, annotationExcludeInterfaces, "", config.ParseInterface)...)
	in.RerouteInterfaces = unique(listOf(d, d.rerouteKey(), "", config.ParseInterface)...)
}

// rerouteKey returns the annotation that lists rerouted interfaces: the new name if the pod has it, and
// otherwise the old name.
func (d *decider) rerouteKey() string {
	if _, ok := d.pod.Annotations[annotationRerouteInterfaces]; ok {
		return annotationRerouteInterfaces
	}
	return annotationKubevirtInterfaces
}

func (d *decider) readEnvironment(in *Intent) {
	in.DropInvalid = d.boolEnv(envDropInvalid)
	_, isSet := d.proxy.Env[envDropInvalid]
	if _, isMisspelt := d.proxy.Env[envDropInvalidMisspelt]; isMisspelt && !isSet {
		d.warn("%s of container %s is not known and has no effect: write %s", envDropInvalidMisspelt, d.proxy.Name, envDropInvalid)
	}
	in.CaptureDNS = d.boolEnv(envDNSCapture)
}

// boolEnv reads a boolean from the proxy's environment. If the variable is absent, it returns false. A
// value that is no boolean counts as false, as in Istio, and adds a warning.
func (d *decider) boolEnv(name string) bool {
	text, ok := d.proxy.Env[name]
	if !ok {
		return false
	}
	value, err := strconv.ParseBool(text)
	if text == "" {
		d.warn("%s of container %s is empty, or set by valueFrom, which capture-cni can't read: using false", name, d.proxy.Name)
	} else if err != nil {
		d.warn("%s of container %s is %s: expected a boolean, using false", name, d.proxy.Name, config.Quoted(text))
	}
	return value
}
