// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/capture-cni/capture-cni/config"
)

const (
	annotationKumaInjected  = "kuma.io/sidecar-injected"
	annotationKumaConfig    = "traffic.kuma.io/transparent-proxy-config"
	containerKumaProxy      = "kuma-sidecar"
	containerKumaInit       = "kuma-init"
	containerKumaValidation = "kuma-validation"

	kumaUID = 5678 // of the proxy's image
)

// kuma describes the annotations that the injector of Kuma 3 writes, and reads them as kuma-cni does,
// with the differences in deploy/reference/sidecars.md. Other annotations with Kuma's prefixes are only
// for the injector.
// https://kuma.io/docs/latest/networking/transparent-proxy/introduction/
func kuma() *mesh {
	return &mesh{
		name: config.Kuma, mark: annotationKumaInjected, container: containerKumaProxy, init: containerKumaInit,
		validation: containerKumaValidation,
		annotations: []Annotation{
			{annotationKumaInjected, "any", "absent", "marks injected pods"},
			{annotationKumaConfig, "YAML of Kuma 3", "needed", "the injector's settings"},
		},
		whole: annotationKumaConfig, exclusions: []string{annotationKumaConfig},
		read: readKuma, inbound: kumaInbound, outbound: kumaOutbound, callsOwnPod: true,
	}
}

// kumaConfig contains the fields of Kuma's configuration, under Kuma's names.
type kumaConfig struct {
	KumaDPUser         string `yaml:"kumaDPUser"`
	IPFamilyMode       string `yaml:"ipFamilyMode"`
	DropInvalidPackets bool   `yaml:"dropInvalidPackets"`

	Log      struct{ Enabled, Level any }
	Redirect struct {
		Inbound, Outbound kumaDirection
		DNS               struct {
			Enabled    bool
			Port       string
			CaptureAll bool `yaml:"captureAll"`
			// These fields have no effect, because the rules always put queries into a conntrack zone,
			// and capture the queries for any server.
			SkipConntrackZoneSplit any `yaml:"skipConntrackZoneSplit"`
			ResolvConfigPath       any `yaml:"resolvConfigPath"`
		}
		VNet struct{ Networks commaList }
	}
	// These fields concern only how Kuma's own program works.
	CNIMode                        any `yaml:"cniMode"`
	WaitInterval                   any `yaml:"waitInterval"`
	StoreFirewalld                 any `yaml:"storeFirewalld"`
	DryRun                         any `yaml:"dryRun"`
	IptablesExecutables            any `yaml:"iptablesExecutables"`
	Comments, Wait, Retry, Verbose any
}

type kumaDirection struct {
	Enabled             bool
	Port                string
	IncludePorts        commaList `yaml:"includePorts"`
	ExcludePorts        commaList `yaml:"excludePorts"`
	ExcludePortsForUIDs []string  `yaml:"excludePortsForUIDs"`
	ExcludePortsForIPs  commaList `yaml:"excludePortsForIPs"`
	InsertRedirect      bool      `yaml:"insertRedirectInsteadOfAppend"`
}

func readKuma(d *decider) Intent {
	c, mesh := d.kumaConfig(), d.settings.Mesh
	inbound, outbound := &c.Redirect.Inbound, &c.Redirect.Outbound
	in := Intent{
		Mesh:                  config.Kuma,
		CaptureDNS:            c.Redirect.DNS.Enabled,
		LoopbackCIDR:          localhostIPv4,
		DropInvalid:           c.DropInvalidPackets,
		InboundPort:           d.wholePort("redirect.inbound.port", inbound.Port),
		ExcludeInboundPorts:   Ports(d.wholePorts("redirect.inbound.excludePorts", inbound.ExcludePorts, mesh.ExcludeInboundPorts...)...),
		ExcludeInboundRanges:  disjoint(wholeList(d, "redirect.inbound.excludePortsForIPs", inbound.ExcludePortsForIPs, addressOrRange)),
		OutboundPort:          d.wholePort("redirect.outbound.port", outbound.Port),
		IncludeOutboundPorts:  d.wholePorts("redirect.outbound.includePorts", outbound.IncludePorts),
		ExcludeOutboundRanges: disjoint(mesh.ExcludeOutboundIPRanges),
	}
	if in.CaptureDNS {
		in.DNSPort = d.wholePort("redirect.dns.port", c.Redirect.DNS.Port)
	}
	if only := d.wholePorts("redirect.inbound.includePorts", inbound.IncludePorts); inbound.Enabled {
		in.InboundPorts = Selection[uint16]{len(only) == 0, only}
	}
	excluded := unique(mesh.ExcludeOutboundPorts...)
	if all := d.wholePorts("redirect.outbound.excludePorts", outbound.ExcludePorts, excluded...); len(in.IncludeOutboundPorts) == 0 {
		excluded = all // with a list of included ports, Kuma ignores its list of excluded ports
	}
	in.ExcludeOutboundPorts = Ports(excluded...)
	if in.OutboundRanges.All = len(in.IncludeOutboundPorts) == 0; !outbound.Enabled {
		in.OutboundPort, in.IncludeOutboundPorts, in.OutboundRanges.All = 0, nil, false
	}
	in.Exempt = slices.Concat(wholeList(d, "redirect.outbound.excludePortsForUIDs", outbound.ExcludePortsForUIDs, kumaUsers)...)
	if ranges := disjoint(wholeList(d, "redirect.outbound.excludePortsForIPs", outbound.ExcludePortsForIPs, addressOrRange)); len(ranges) > 0 {
		in.Exempt = append(in.Exempt, Exempt{Ranges: ranges})
	}
	d.kumaNotServed(c)
	d.readWholeProxy(&in, "kumaDPUser", cmp.Or(c.KumaDPUser, fmt.Sprint(kumaUID)), kumaUID)
	// With dualstack, kuma-validation fails unless IPv6 is captured, even if the pod has only a link-local
	// address of IPv6, which the kernel may add after ADD.
	switch c.IPFamilyMode {
	case "dualstack":
		d.families.dualStack = true
	case "ipv4":
		d.families.otherwise = ", ipFamilyMode is ipv4"
	default:
		d.wholeFault("ipFamilyMode is %s: expected dualstack or ipv4", config.Quoted(c.IPFamilyMode))
	}
	d.warnEarlyContainers(&in, containerKumaInit, containerKumaValidation)
	d.warnUnknownAnnotations()
	return in
}

// kumaConfig reads Kuma's configuration from the pod's annotation, with Kuma's defaults for absent
// fields. An unknown field becomes a fault.
func (d *decider) kumaConfig() (c kumaConfig) {
	c.IPFamilyMode = "dualstack"
	c.Redirect.Inbound = kumaDirection{Enabled: true, Port: "15006"}
	c.Redirect.Outbound = kumaDirection{Enabled: true, Port: "15001"}
	c.Redirect.DNS.Port = "15053"
	text, ok := d.wholeText("the YAML that the injector of Kuma 3 writes")
	if !ok {
		return c
	}
	if strings.Contains(text, "&") { // aliases of an anchor can repeat its value until no memory is left
		d.wholeFault("it has an anchor of YAML, or a character &: expected YAML as the injector writes it")
		return c
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.SetStrict(true)
	err := decoder.Decode(&c)
	if err == nil && !errors.Is(decoder.Decode(new(any)), io.EOF) {
		err = errors.New("another document follows it")
	}
	if err != nil {
		d.wholeFault("%w: expected YAML with the fields of Kuma 3", err)
	}
	return c
}

// kumaNotServed adds a fault for each setting that the rules can't implement, and a warning if log.enabled
// is set.
func (d *decider) kumaNotServed(c kumaConfig) {
	in, out := c.Redirect.Inbound, c.Redirect.Outbound
	refuse := func(found bool, fault string) {
		if found {
			d.wholeFault("%s", fault)
		}
	}
	refuse(c.Redirect.DNS.Enabled && !c.Redirect.DNS.CaptureAll,
		"redirect.dns.captureAll is false: expected true, because the pod's DNS servers are not known")
	refuse(len(c.Redirect.VNet.Networks) > 0, "redirect.vnet.networks is not served: expected none")
	refuse(in.InsertRedirect || out.InsertRedirect, "insertRedirectInsteadOfAppend is not served: expected false")
	refuse(len(in.ExcludePortsForUIDs) > 0, "redirect.inbound.excludePortsForUIDs: expected none, because a client has no uid")
	if c.Log.Enabled == true {
		d.warn("annotation %s: log.enabled has no effect: use kubectl capture-cni trace", annotationKumaConfig)
	}
}

// kumaUsers parses PROTOCOLS:PORTS:UIDS, PORTS:UIDS or UIDS, where UIDS is a uid, or the first and the
// last uid with a dash between them. An empty or absent part, or *, means all protocols or ports.
func kumaUsers(text string) (list []Exempt, err error) {
	parts := append([]string{"", ""}, strings.Split(text, ":")...)
	protocols, ports := parts[len(parts)-3], parts[len(parts)-2]
	first, last, isRange := strings.Cut(parts[len(parts)-1], "-")
	if !isRange {
		last = first
	}
	e, faults := Exempt{UIDs: &IDRange{}}, [4]error{}
	if ports != "*" {
		e.Ports, faults[0] = parseList(ports, parsePortRange)
		e.Ports = merged(e.Ports)
	}
	e.UIDs.First, faults[1] = parseUID(first)
	e.UIDs.Last, faults[2] = parseUID(last)
	if protocols == "" || protocols == "*" {
		protocols = "tcp,udp"
	}
	for protocol := range strings.SplitSeq(protocols, ",") {
		if e.Protocol = Protocol(strings.ToLower(strings.TrimSpace(protocol))); e.Protocol != TCP && e.Protocol != UDP {
			faults[3] = errors.New("another protocol")
		}
		list = append(list, e)
	}
	if err := errors.Join(faults[:]...); err != nil || len(parts) > 5 || e.UIDs.Last < e.UIDs.First {
		return nil, fmt.Errorf("%s: expected PROTOCOLS:PORTS:UIDS, PORTS:UIDS or UIDS, such as tcp:80:1000-2000", config.Quoted(text))
	}
	return list, nil
}

func kumaInbound(in *Intent) (f flow) {
	if !in.capturesInbound() {
		return nil
	}
	for _, family := range []Family{IPv4, IPv6} {
		f.exempt(Match{Src: ranges("exclude_inbound_ranges", in.ExcludeInboundRanges, family)}, "excluded client")
	}
	f.inboundPorts(in)
	return f
}

// kumaOutbound returns the outbound flow in Kuma's order, but without negated matches. In a fenced pod,
// it does not exempt DNS queries over TCP, because exempt packets pass the fence.
func kumaOutbound(in *Intent) (f flow) {
	f.exemptTraffic(in)
	if in.CaptureDNS {
		own := dns(UDP)
		own.UID = one(in.ProxyUID)
		f.exempt(own, "the proxy's own DNS query")
		f.add(dns(UDP), in.toDNS(), "DNS over UDP")
	}
	if in.OutboundPort == 0 {
		f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
		return f
	}
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "excluded outbound port")
	f.exempt(Match{ToLo: true, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	f.exempt(Match{ToLo: true, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	f.add(Match{UID: one(in.ProxyUID)}, gotoChain(chainProxy), "sent by the proxy's user")
	if in.CaptureDNS && in.Fence == nil {
		f.exempt(dns(TCP), "DNS over TCP")
	}
	f.exempt(Match{ToLo: true}, "loopback")
	f.exempt(Match{Dst: one(in.LoopbackCIDR)}, "localhost")
	f.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	f.excludedRanges(in)
	f.add(tcpPorts("include_outbound_ports", Ports(in.IncludeOutboundPorts...)...), toOutbound, "every other destination")
	f.proxyTraffic(in)
	return f
}
