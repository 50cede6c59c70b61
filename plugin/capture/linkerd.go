// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

const (
	annotationLinkerdVersion = "linkerd.io/proxy-version"
	labelLinkerdControlPlane = "linkerd.io/control-plane-component" // a label, which is kept as an annotation

	annotationLinkerd      = "config.linkerd.io/"
	annotationSkipInbound  = annotationLinkerd + "skip-inbound-ports"
	annotationSkipOutbound = annotationLinkerd + "skip-outbound-ports"
	annotationSkipSubnets  = annotationLinkerd + "skip-subnets"
	annotationLinkerdUID   = annotationLinkerd + "proxy-uid"
	annotationLinkerdGID   = annotationLinkerd + "proxy-gid"
)

const (
	containerLinkerdProxy     = "linkerd-proxy"
	containerLinkerdInit      = "linkerd-init"
	containerLinkerdValidator = "linkerd-network-validator"
)

// Variables of the proxy's container that contain the addresses on which the proxy listens.
const (
	envLinkerdInbound     = "LINKERD2_PROXY_INBOUND_LISTEN_ADDR"
	envLinkerdOutbound    = "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS"
	envLinkerdOutboundOld = "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR"
	envLinkerdControl     = "LINKERD2_PROXY_CONTROL_LISTEN_ADDR"
	envLinkerdAdmin       = "LINKERD2_PROXY_ADMIN_LISTEN_ADDR"
)

// linkerdUID is the proxy's uid if neither the pod nor an annotation sets one other than 0. It is the uid
// in the proxy's image.
const linkerdUID = 2102

// apiServerPorts are the API server's usual ports. Linkerd's control plane connects to them without its
// proxy.
var apiServerPorts = [...]uint16{443, 6443}

// linkerd describes the annotations and containers that Linkerd's injector writes, and reads the
// annotations as linkerd-cni does, with the differences in deploy/reference/sidecars.md. Most keys with
// Linkerd's prefix do not concern capture, so a Pod contains an unknown key only if the key looks
// misspelt.
// https://linkerd.io/2/reference/proxy-configuration/
func linkerd() *mesh {
	return &mesh{
		name: config.Linkerd, mark: annotationLinkerdVersion, container: containerLinkerdProxy, init: containerLinkerdInit,
		annotations: linkerdAnnotations(),
		lists:       map[string][]string{"exclude_inbound_ranges": {annotationSkipSubnets}},
		exclusions:  []string{annotationSkipInbound, annotationSkipOutbound, annotationSkipSubnets}, excluding: labelLinkerdControlPlane,
		variables: []string{envLinkerdInbound, envLinkerdOutbound, envLinkerdOutboundOld, envLinkerdControl, envLinkerdAdmin},
		label: func(labels, annotations map[string]string) {
			if labels[labelLinkerdControlPlane] != "" {
				annotations[labelLinkerdControlPlane] = ""
			}
		},
		read: readLinkerd, inbound: linkerdInbound, outbound: linkerdOutbound, callsOwnPod: true,
	}
}

func linkerdAnnotations() []Annotation {
	const ports = "ports, port ranges"
	return []Annotation{
		{annotationLinkerdVersion, "any", "absent", "marks injected pods"},
		{annotationSkipInbound, ports, "empty", "uncaptured inbound TCP ports"},
		{annotationSkipOutbound, ports, "empty", "uncaptured outbound TCP ports; replaces `mesh.excludeOutboundPorts`"},
		{annotationSkipSubnets, "CIDRs", "empty", "clients whose inbound connections are not captured"},
		{annotationLinkerdUID, "number", "`2102`", "the proxy's uid if container and pod set none or 0"},
		{annotationLinkerdGID, "number", "none", "the proxy's gid if its container sets none or 0"},
	}
}

func readLinkerd(d *decider) Intent {
	inbound, outbound := d.listens(4143, envLinkerdInbound), d.listens(4140, envLinkerdOutbound, envLinkerdOutboundOld)
	in := Intent{
		Mesh:           config.Linkerd,
		InboundPort:    inbound[0].Port(),
		OutboundPort:   outbound[0].Port(),
		InboundPorts:   Everything[uint16](),
		OutboundRanges: Everything[netip.Prefix](),
	}
	mesh := d.settings.Mesh
	in.ExcludeInboundPorts = merged(slices.Concat(
		Ports(d.listens(4190, envLinkerdControl)[0].Port(), d.listens(4191, envLinkerdAdmin)[0].Port()),
		Ports(mesh.ExcludeInboundPorts...), d.skippedPorts(annotationSkipInbound)))
	in.ExcludeOutboundPorts = d.skippedPorts(annotationSkipOutbound)
	if d.pod.Annotations[annotationSkipOutbound] == "" {
		in.ExcludeOutboundPorts = Ports(mesh.ExcludeOutboundPorts...)
	}
	if _, controlPlane := d.pod.Annotations[labelLinkerdControlPlane]; controlPlane {
		in.ExcludeOutboundPorts = append(in.ExcludeOutboundPorts, Ports(apiServerPorts[:]...)...)
	}
	in.ExcludeOutboundPorts = merged(in.ExcludeOutboundPorts)
	in.ExcludeOutboundRanges = disjoint(mesh.ExcludeOutboundIPRanges)
	in.ExcludeInboundRanges = disjoint(listOf(d, annotationSkipSubnets, "", config.ParsePrefix))

	uid, gid := d.idOf(annotationLinkerdUID, linkerdUID), d.idOf(annotationLinkerdGID, 0)
	if d.proxy.GID.FromPod { // each other container without a gid of its own has this gid, too
		d.proxy.GID = ID{}
	}
	in.ProxyUID, in.ProxyGID = d.proxyID("uid", Container.uid, uid), d.proxyID("gid", Container.gid, gid)
	d.checkUnknownIDs(in.ProxyUID != linkerdUID || in.ProxyGID != 0 && in.ProxyGID != linkerdUID)
	d.checkGroups(in.ProxyGID)
	ipv6 := slices.ContainsFunc(slices.Concat(inbound, outbound), func(a netip.AddrPort) bool { return a.Addr().Is6() })
	d.families = families{dualStack: ipv6, otherwise: ", " + containerLinkerdProxy + " listens on no IPv6 address"}
	d.warnEarlyContainers(&in, containerLinkerdInit, containerLinkerdValidator)
	d.warnUnknownAnnotations()
	return in
}

// linkerdInbound returns the inbound flow, in the order of linkerd2-proxy-init's rules.
func linkerdInbound(in *Intent) (f flow) {
	f.exempt(tcpPorts("exclude_inbound_ports", in.ExcludeInboundPorts...), "skipped inbound port")
	for _, family := range []Family{IPv4, IPv6} {
		f.exempt(Match{Src: ranges("exclude_inbound_ranges", in.ExcludeInboundRanges, family)}, "skipped subnet")
	}
	f.add(Match{Protocol: TCP}, toInbound, "every other inbound port")
	return f
}

// linkerdOutbound returns the outbound flow, in the order of linkerd2-proxy-init's rules. No traffic on
// loopback is captured, not even the proxy's traffic to its own pod.
func linkerdOutbound(in *Intent) (f flow) {
	f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
	f.exempt(Match{GID: given(in.ProxyGID)}, "sent by the proxy's group")
	f.exempt(Match{ToLo: true}, "loopback")
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "skipped outbound port")
	f.excludedRanges(in)
	f.add(Match{Protocol: TCP}, toOutbound, "every other destination")
	return f
}

// listens returns the addresses on which the proxy listens. It reads comma-separated IP:PORT from the
// first of these variables that contains a valid address. If no variable does, it returns 0.0.0.0 with
// the port byDefault.
func (d *decider) listens(byDefault uint16, names ...string) (addresses []netip.AddrPort) {
	for _, name := range names {
		text, set := d.proxy.Env[name]
		for element := range strings.SplitSeq(text, ",") {
			if address, err := netip.ParseAddrPort(element); err == nil && address.Port() != 0 {
				addresses = append(addresses, address)
			}
		}
		if len(addresses) > 0 {
			return addresses
		}
		if set {
			d.warn("ignoring %s of container %s, which is %s: expected IP:PORT, so Linkerd's other variable or default port applies",
				name, d.proxy.Name, config.Quoted(text))
		}
	}
	return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), byDefault)}
}

// skippedPorts reads a list of ports as linkerd-cni does. It does not trim white space, and ignores
// elements that are no ports, with a warning, so that those ports are captured. A list without any
// valid element becomes a fault, because linkerd-cni fails, too.
func (d *decider) skippedPorts(key string) (ports []PortRange) {
	text := d.pod.Annotations[key]
	if text == "" || !d.withinLimits(key, text) {
		return nil
	}
	var faults []string
	for element := range strings.SplitSeq(text, ",") {
		if r, err := parsePortRange(element); err != nil {
			faults = append(faults, err.Error())
		} else {
			ports = append(ports, r)
		}
	}
	if len(ports) == 0 {
		d.fault(key, text, "no element is a port: %s", strings.Join(config.Few(faults, "elements are faulty"), "; "))
		return nil
	}
	for _, fault := range config.Few(faults, "elements are no ports") {
		d.warn("annotation %s: Linkerd ignores elements with white space or of another form, so these ports are captured: %s", key, fault)
	}
	return ports
}

// idOf reads an annotation with a uid or gid. It returns byDefault if the annotation is absent, empty, 0
// or, as in Linkerd, negative. A value that is no id becomes a fault.
func (d *decider) idOf(key string, byDefault uint32) uint32 {
	text := d.pod.Annotations[key]
	if text == "" {
		return byDefault
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id > math.MaxUint32 {
		d.fault(key, text, "expected a numeric id")
	}
	return cmp.Or(uint32(max(id, 0)), byDefault) // with 0, all of root's traffic would be exempt
}

func parsePortRange(text string) (PortRange, error) {
	first, last, err := config.ParsePortRange(text)
	return PortRange{first, last}, err
}
