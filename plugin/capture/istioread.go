// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/capture-cni/capture-cni/config"
)

// proxyPorts are served by Istio's proxy itself and never captured inbound.
var proxyPorts = [...]uint16{15020, 15021, 15090}

// defaultExcludedOutboundPort is the default of excludeOutboundPorts.
const defaultExcludedOutboundPort = 15020

func readIstio(d *decider) Intent {
	intent, mesh := d.meshDefaults(), d.settings.Mesh
	d.readAnnotations(&intent)
	d.readEnvironment(&intent)
	intent.ProxyUID, intent.ProxyGID = d.proxyID("uid", Container.uid, mesh.ProxyUID), d.proxyID("gid", Container.gid, mesh.ProxyGID)
	d.checkUnknownIDs(intent.ProxyUID != mesh.ProxyUID, intent.ProxyGID != mesh.ProxyGID)
	d.checkGroups(intent.ProxyGID)
	d.families = families{dualStack: d.boolEnv(envDualStack), otherwise: ", " + envDualStack + " is not true"}
	d.warnEarlyContainers(&intent, containerInit, containerValidation)
	d.warnUnknownAnnotations()
	return intent
}

func (d *decider) meshDefaults() Intent {
	mesh := d.settings.Mesh
	return Intent{
		Mesh:               config.Istio,
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
		d.fault(annotationInterceptionMode, mode, "expected REDIRECT, TPROXY or NONE")
	}

	in.InboundPorts = selectionOf(d, annotationIncludeInboundPorts, config.ParsePort)
	in.InboundPorts.Only = unique(in.InboundPorts.Only...)
	in.ExcludeInboundPorts = Ports(unique(slices.Concat(
		proxyPorts[:], mesh.ExcludeInboundPorts, listOf(d, annotationExcludeInboundPorts, "", config.ParsePort))...)...)

	in.IncludeOutboundPorts = unique(listOf(d, annotationIncludeOutboundPorts, "", config.ParsePort)...)
	in.ExcludeOutboundPorts = Ports(unique(slices.Concat(
		mesh.ExcludeOutboundPorts,
		listOf(d, annotationExcludeOutboundPorts, strconv.Itoa(defaultExcludedOutboundPort), config.ParsePort))...)...)

	in.OutboundRanges = selectionOf(d, annotationIncludeOutboundRanges, config.ParsePrefix)
	in.CaptureLoopback = slices.ContainsFunc(in.OutboundRanges.Only, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
	in.OutboundRanges.Only = disjoint(in.OutboundRanges.Only)
	in.ExcludeOutboundRanges = disjoint(slices.Concat(
		mesh.ExcludeOutboundIPRanges, listOf(d, annotationExcludeOutboundRanges, "", config.ParsePrefix)))

	in.ExcludeInterfaces = unique(listOf(d, annotationExcludeInterfaces, "", config.ParseInterface)...)
	in.RerouteInterfaces = unique(listOf(d, d.rerouteKey(), "", config.ParseInterface)...)
}

// rerouteKey returns the annotation of rerouted interfaces, by its new or its old name.
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

// boolEnv reads a boolean from the proxy's environment. A value that is not a boolean
// is false, as in Istio, with a warning.
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
