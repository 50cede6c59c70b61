// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

const (
	annotationOwn           = "capture-cni.io/"
	annotationProxy         = annotationOwn + "proxy"
	annotationInboundPort   = annotationOwn + "inbound-port"
	annotationOutboundPort  = annotationOwn + "outbound-port"
	annotationDNSPort       = annotationOwn + "dns-port"
	annotationTProxy        = annotationOwn + "tproxy"
	annotationExceptInbound = annotationOwn + "exclude-inbound-ports"
	annotationExceptPorts   = annotationOwn + "exclude-outbound-ports"
	annotationExceptRanges  = annotationOwn + "exclude-outbound-ranges"
	annotationOnlyRanges    = annotationOwn + "include-outbound-ranges"
)

// ownKeys describes the plugin's own annotations, which a pod's author can write for any sidecar. An ADD
// that sees one of these annotations, other than a fence's, captures the pod or fails, unless the operator
// excludes the pod's namespace or this mesh.
func ownKeys() *mesh {
	return &mesh{
		name: config.OwnKeys, proxy: ownProxy, annotations: ownAnnotations(), prefix: annotationOwn, byAuthor: true,
		exclusions: []string{annotationExceptInbound, annotationExceptPorts, annotationExceptRanges}, inclusions: []string{annotationOnlyRanges},
		lists: map[string][]string{"include_outbound_ranges": {annotationOnlyRanges}, "exclude_outbound_ranges": {annotationExceptRanges}},
		read:  readOwnKeys, inbound: istioInbound, outbound: ownOutbound,
	}
}

func ownAnnotations() []Annotation {
	const ports = "ports, port ranges"
	return append([]Annotation{
		{annotationProxy, "container's name", "needed", "the proxy, whose traffic is never captured"},
		{annotationInboundPort, "port", "not captured", "the proxy's port for inbound connections"},
		{annotationOutboundPort, "port", "not captured", "the proxy's port for outbound connections"},
		{annotationDNSPort, "port", "not captured", "the proxy's port for DNS queries, TCP and UDP"},
		{annotationTProxy, "`true`, `false`", "`false`", "inbound connections keep the client's address"},
		{annotationExceptInbound, ports, "empty", "uncaptured inbound TCP ports"},
		{annotationExceptPorts, ports, "empty", "uncaptured outbound ports"},
		{annotationExceptRanges, "CIDRs", "empty", "uncaptured outbound destinations, except for DNS"},
		{annotationOnlyRanges, "`*` or CIDRs", "`*`", "outbound destinations that are captured"},
	}, fenceAnnotations()...)
}

// ownProxy returns the container that the annotation capture-cni.io/proxy names, or an empty one, for
// which readOwnProxy adds a fault.
func ownProxy(pod Pod) *Container {
	return cmp.Or(pod.container(pod.Annotations[annotationProxy]), &Container{})
}

func readOwnKeys(d *decider) Intent {
	mesh := d.settings.Mesh
	in := Intent{
		Mesh:         config.OwnKeys,
		InboundPort:  d.ownPort(annotationInboundPort),
		OutboundPort: d.ownPort(annotationOutboundPort),
		DNSPort:      d.ownPort(annotationDNSPort),
		LoopbackCIDR: mesh.LoopbackCIDR,
	}
	in.CaptureDNS = in.DNSPort != 0
	if in.InboundPort != 0 {
		in.InboundPorts = Everything[uint16]()
	}
	in.ExcludeInboundPorts = merged(append(listOf(d, annotationExceptInbound, "", parsePortRange), Ports(mesh.ExcludeInboundPorts...)...))
	in.ExcludeOutboundPorts = merged(append(listOf(d, annotationExceptPorts, "", parsePortRange), Ports(mesh.ExcludeOutboundPorts...)...))
	in.ExcludeOutboundRanges = disjoint(append(listOf(d, annotationExceptRanges, "", config.ParsePrefix), mesh.ExcludeOutboundIPRanges...))
	if only := selectionOf(d, annotationOnlyRanges, config.ParsePrefix); in.OutboundPort != 0 {
		in.OutboundRanges = Selection[netip.Prefix]{only.All, disjoint(only.Only)}
	}
	text, ok := d.pod.Annotations[annotationTProxy]
	if in.Transparent = text == "true"; ok && text != "true" && text != "false" {
		d.fault(annotationTProxy, text, "expected true or false")
	}
	d.checkOwnKeys(in)
	d.readOwnProxy(&in)
	d.families = families{ifPresent: true}
	d.warnEarlyContainers(&in)
	return in
}

// ownOutbound returns the outbound flow. It captures none of the proxy's packets, not even those to its
// own pod, because a proxy that has only an outbound port would receive its own connections.
func ownOutbound(in *Intent) (f flow) {
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "excluded outbound port")
	f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
	if in.capturesDNS() { // precedes the rule that exempts loopback, because a resolver may listen there
		for _, protocol := range []Protocol{TCP, UDP} {
			f.add(dns(protocol), in.toDNS(), "DNS over "+strings.ToUpper(string(protocol)))
		}
	}
	f.exempt(Match{ToLo: true}, "loopback")
	f.excludedRanges(in)
	f.outboundRanges(in, Match{}, "captured outbound range")
	return f
}

// ownPort returns the port in an annotation, or 0 if the annotation is absent or wrong. A wrong port
// also becomes a fault.
func (d *decider) ownPort(key string) uint16 {
	text, ok := d.pod.Annotations[key]
	if !ok {
		return 0
	}
	port, err := config.ParsePort(text)
	if err != nil || port == 0 {
		d.fault(key, text, "expected a port from 1 to 65535")
	}
	return port
}

// checkOwnKeys adds faults for the first ten unknown keys, and for keys that have no effect, because the
// pod's author expects each key to have an effect.
func (d *decider) checkOwnKeys(in Intent) {
	unknown := d.unknownKeys()
	for _, key := range unknown[:min(len(unknown), 10)] { // a pod can have thousands of them
		d.keyFault(key, "there is no such key: expected one of those in deploy/reference/sidecars.md")
	}
	needs := func(key, other string, has bool) {
		if text, ok := d.pod.Annotations[key]; ok && !has {
			d.fault(key, text, "it has no effect without %s: expected that, too", other)
		}
	}
	needs(annotationExceptInbound, annotationInboundPort, in.InboundPort != 0)
	needs(annotationTProxy, annotationInboundPort, in.InboundPort != 0)
	needs(annotationExceptRanges, annotationOutboundPort, in.OutboundPort != 0)
	needs(annotationOnlyRanges, annotationOutboundPort, in.OutboundPort != 0)
	needs(annotationExceptPorts, annotationOutboundPort+" or "+annotationDNSPort, in.OutboundPort != 0 || in.CaptureDNS)
	only := in.OutboundRanges.Only
	switch {
	case in.InboundPort == 0 && in.OutboundPort == 0 && !in.CaptureDNS && len(d.faults) == 0:
		d.fault(annotationProxy, d.pod.Annotations[annotationProxy], "nothing would be captured: expected %s, %s or %s, too",
			annotationInboundPort, annotationOutboundPort, annotationDNSPort)
	case in.CaptureDNS && !in.capturesDNS():
		d.fault(annotationDNSPort, d.pod.Annotations[annotationDNSPort], "it has no effect: port 53 is excluded, by the pod or in netconf.mesh")
	case in.OutboundPort != 0 && !in.OutboundRanges.All &&
		(len(only) == 0 || slices.ContainsFunc(only, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })):
		d.fault(annotationOnlyRanges, d.pod.Annotations[annotationOnlyRanges], "expected * or ranges, none of loopback, which is not captured")
	}
}

// readOwnProxy reads the proxy's uid, by which the rules recognize the proxy. No process of another
// container may have this uid.
func (d *decider) readOwnProxy(in *Intent) {
	name, ok := d.pod.Annotations[annotationProxy]
	switch {
	case !ok:
		d.keyFault(annotationProxy, "it is absent: expected the name of the proxy's container")
	case d.proxy.Name == "":
		d.fault(annotationProxy, name, "the pod has no such container: expected the name of one")
	case d.proxy.UID.Number == 0:
		d.refuse("container %s sets no numeric uid other than root's, by which its traffic could be recognized: "+
			"set runAsUser in its security context", config.Quoted(name))
	default:
		d.onlyOwnIDs = true
		in.ProxyUID = d.proxyID("uid", Container.uid, 0)
		d.checkUnknownIDs(true)
	}
}
