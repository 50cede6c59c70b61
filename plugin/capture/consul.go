// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

const (
	annotationConsul          = "consul.hashicorp.com/"
	annotationConsulStatus    = annotationConsul + "transparent-proxy-status"
	annotationConsulConfig    = annotationConsul + "redirect-traffic-config"
	annotationConsulDualStack = annotationConsul + "dual-stack"

	containerConsulProxy = "consul-dataplane"
	containerConsulInit  = "consul-connect-inject-init"
)

// Defaults of Consul's injector.
const (
	consulUID          = 5995
	consulOutboundPort = 15001
)

var localhostIPv4 = netip.MustParsePrefix("127.0.0.1/32")

// consul describes the annotations that Consul's injector writes on Kubernetes, and reads them as
// consul-cni does with version 0.19 of consul/sdk, with the differences in deploy/reference/sidecars.md.
// Other annotations with Consul's prefix are only for the injector.
// https://developer.hashicorp.com/consul/docs/reference/k8s/annotation-label
func consul() *mesh {
	return &mesh{
		name: config.Consul, mark: annotationConsulStatus, container: containerConsulProxy, init: containerConsulInit,
		annotations: []Annotation{
			{annotationConsulStatus, "any", "absent", "marks injected pods"},
			{annotationConsulConfig, "JSON of `consul/sdk`", "needed", "the injector's settings"},
			{annotationConsulDualStack, "`true`, `false`", "`false`", "IPv6 is captured, too"},
		},
		whole: annotationConsulConfig, exclusions: []string{annotationConsulConfig},
		read: readConsul, inbound: consulInbound, outbound: consulOutbound,
	}
}

// consulConfig contains the fields of Consul's configuration, under Consul's names. Fields that the
// plugin does not use concern only Consul's own plugin.
type consulConfig struct {
	ConsulDNSIP   string
	ConsulDNSPort uint16

	ProxyUserID                         string
	ProxyInboundPort, ProxyOutboundPort uint16

	ExcludeInboundPorts, ExcludeOutboundPorts, ExcludeOutboundCIDRs, ExcludeUIDs []string

	NetNS                              string
	IptablesProvider, NftablesProvider any
}

func readConsul(d *decider) Intent {
	c, mesh := d.consulConfig(), d.settings.Mesh
	in := Intent{
		Mesh:           config.Consul,
		InboundPort:    d.wholePort("ProxyInboundPort", strconv.Itoa(int(c.ProxyInboundPort))),
		OutboundPort:   cmp.Or(c.ProxyOutboundPort, consulOutboundPort),
		InboundPorts:   Everything[uint16](),
		OutboundRanges: Everything[netip.Prefix](),
		ExcludeInboundPorts: merged(append(
			wholeList(d, "ExcludeInboundPorts", c.ExcludeInboundPorts, consulPorts), Ports(mesh.ExcludeInboundPorts...)...)),
		ExcludeOutboundPorts: merged(append(
			wholeList(d, "ExcludeOutboundPorts", c.ExcludeOutboundPorts, consulPorts), Ports(mesh.ExcludeOutboundPorts...)...)),
		ExcludeOutboundRanges: disjoint(append(
			wholeList(d, "ExcludeOutboundCIDRs", c.ExcludeOutboundCIDRs, addressOrRange), mesh.ExcludeOutboundIPRanges...)),
	}
	for _, uid := range unique(wholeList(d, "ExcludeUIDs", c.ExcludeUIDs, parseUID)...) {
		in.Exempt = append(in.Exempt, Exempt{Protocol: TCP, UIDs: &IDRange{uid, uid}})
	}
	dualStack := d.pod.Annotations[annotationConsulDualStack] == "true" // consul-cni takes other values for false, too
	in.Translations = d.consulDNS(c, dualStack)

	d.readWholeProxy(&in, "ProxyUserID", c.ProxyUserID, consulUID)
	d.families = families{dualStack: dualStack, otherwise: ", " + annotationConsulDualStack + " is not true"}
	d.warnEarlyContainers(&in, containerConsulInit)
	d.warnUnknownAnnotations()
	return in
}

// consulConfig reads the configuration. An unknown field is a fault, because it may change what is
// captured.
func (d *decider) consulConfig() (c consulConfig) {
	text, ok := d.wholeText("the JSON that Consul's injector writes with connectInject.cni.enabled=true")
	if !ok {
		return c
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&c)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("text follows it")
	}
	if err != nil {
		d.wholeFault("%w: expected the JSON of a Config of consul/sdk", err)
	}
	return c
}

// consulPorts parses a port, or the first and the last port of a range with a colon or a dash between
// them. Next to a colon, a missing port is 0 or 65535. Unlike Consul's plugin, consulPorts accepts no
// names of services, whose ports can differ between nodes.
func consulPorts(text string) (PortRange, error) {
	if first, last, isRange := strings.Cut(text, ":"); isRange {
		text = cmp.Or(first, "0") + "-" + cmp.Or(last, "65535")
	}
	return parsePortRange(text)
}

// consulDNS returns the translations of DNS queries. Without ConsulDNSPort, queries for any server of
// the same IP family go to ConsulDNSIP, if it is set. With ConsulDNSPort, queries for ConsulDNSIP, or for
// localhost if ConsulDNSIP is not set, go to that port of the same address. Consul's injector makes this
// address the first server in the pod's resolv.conf.
func (d *decider) consulDNS(c consulConfig, dualStack bool) (list []Translation) {
	servers := []netip.Addr{localhostIPv4.Addr()}
	if dualStack {
		servers = append(servers, localhostIPv6.Addr())
	}
	if c.ConsulDNSIP != "" {
		server, err := netip.ParseAddr(c.ConsulDNSIP)
		if err != nil || server.Zone() != "" || server.Is4In6() || server.Is6() != dualStack {
			d.wholeFault("ConsulDNSIP is %s: expected an IPv6 address with %s true, and else an IPv4 address",
				config.Quoted(c.ConsulDNSIP), annotationConsulDualStack)
			return nil
		}
		if c.ConsulDNSPort == 0 {
			return []Translation{{To: netip.AddrPortFrom(server, 0)}}
		}
		servers = []netip.Addr{server}
	}
	if c.ConsulDNSPort == 0 {
		return nil
	}
	for _, server := range servers {
		list = append(list, Translation{netip.PrefixFrom(server, server.BitLen()), netip.AddrPortFrom(server, c.ConsulDNSPort)})
	}
	return list
}

func consulInbound(in *Intent) (f flow) {
	f.inboundPorts(in)
	return f
}

// consulOutbound returns the outbound flow in the order of consul/sdk, which first translates the
// queries of all users. On loopback, it exempts only localhost, so connections to the pod's own
// addresses are captured.
func consulOutbound(in *Intent) (f flow) {
	f.translate(in)
	f.exemptTraffic(in)
	f.excludedRanges(in)
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "excluded outbound port")
	f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
	f.exempt(Match{Dst: one(localhostIPv4)}, "localhost")
	f.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	f.add(Match{Protocol: TCP}, toOutbound, "every other destination")
	return f
}
