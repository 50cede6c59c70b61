// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// kumaPod returns a pod as the injector of Kuma 3 makes it, with this configuration.
func kumaPod(text string, changes ...func(*Pod)) Pod {
	pod := Pod{
		Annotations: map[string]string{annotationKumaInjected: "true", annotationKumaConfig: text},
		Containers: []Container{
			{Name: containerKumaValidation, Init: true, UID: ID{Number: kumaUID}},
			{Name: containerKumaProxy, Init: true, KeepsRunning: true, UID: ID{Number: kumaUID}},
			{Name: "app", UID: ID{Number: 1000}},
		},
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod.With(nil, pod.Annotations)
}

// TestKumaKeys reads every field as kuma-cni does, over Kuma's defaults.
func TestKumaKeys(t *testing.T) {
	t.Parallel()
	const defaults = "in 15006 {true []} [9] [] out 15001 [] [7] true dns false 0 uid 5678 invalid false"
	for text, want := range map[string]string{
		"{}": defaults, "redirect: {dns: {port: 0}}": defaults,
		"cniMode: true\nverbose: true\nlog: {enabled: false, level: 7}\nredirect: {dns: {skipConntrackZoneSplit: true, resolvConfigPath: /x}}": defaults,
		"kumaDPUser: 7\ndropInvalidPackets: true": "in 15006 {true []} [9] [] out 15001 [] [7] true dns false 0 uid 7 invalid true",
		`redirect: {dns: {enabled: true, captureAll: true, port: "53"}, inbound: {port: 1, excludePorts: "80, 81"}, outbound: {port: "2", excludePorts: [80, "81,82"]}}`://
		"in 1 {true []} [9 80 81] [] out 2 [] [7 80 81 82] true dns true 53 uid 5678 invalid false",
		"redirect: {inbound: {includePorts: [81, 80, 81], excludePortsForIPs: [10.0.0.1, '10.0.0.0/8,fd00::/8']}, outbound: {includePorts: '443', excludePorts: [80]}}"://
		"in 15006 {false [80 81]} [9] [10.0.0.0/8 fd00::/8] out 15001 [443] [7] false dns false 0 uid 5678 invalid false",
		"redirect: {inbound: {enabled: false, includePorts: ''}, outbound: {enabled: false, includePorts: [1]}}": "in 15006 {false []} [9] [] out 0 [] [7] false dns false 0 uid 5678 invalid false",
	} {
		in, warnings, err := decide(kumaPod(text), withLinkerd(), only4)
		got := fmt.Sprint("in ", in.InboundPort, " ", in.InboundPorts, " ", in.ExcludeInboundPorts, " ", in.ExcludeInboundRanges, " out ", in.OutboundPort, " ", in.IncludeOutboundPorts, " ",
			in.ExcludeOutboundPorts, " ", in.OutboundRanges.All, " dns ", in.CaptureDNS, " ", in.DNSPort, " uid ", in.ProxyUID, " invalid ", in.DropInvalid)
		if err != nil || got != want || len(warnings) > 0 || in.IPv6 != Captured || in.Exempt != nil {
			t.Errorf("%s: got %s, want %s; %q, %v, %+v", text, got, want, warnings, err, in.Exempt)
		}
	}
	// kuma-validation of a pod with fe80::1 needs IPv6, unless the mode is ipv4.
	for _, test := range []struct {
		mode      string
		policy    config.IPv6Policy
		addresses []netip.Addr
		want      Treatment
	}{
		{"dualstack", config.IPv6Mesh, dualStack, Captured},
		{"dualstack", config.IPv6Mesh, only4, Captured},
		{"dualstack", config.IPv6Mesh, only4[:1], Captured}, // the kernel may add fe80::1 after ADD
		{"dualstack", config.IPv6Always, only4, Captured},
		{"dualstack", config.IPv6Never, only4, Refused},
		{"ipv4", config.IPv6Mesh, only4, Refused},
		{"ipv4", config.IPv6Mesh, dualStack, Ignored},
	} {
		settings := withLinkerd()
		settings.IPv6 = test.policy
		in, _, err := decide(kumaPod("ipFamilyMode: "+test.mode), settings, test.addresses)
		if err != nil || in.IPv6 != test.want {
			t.Errorf("%+v: IPv6 is %q, %v", test, in.IPv6, err)
		}
	}
	_, warnings, err := decide(kumaPod("log: {enabled: true}"), withLinkerd(), only4)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "log.enabled has no effect") {
		t.Errorf("LOG: %q, %v", warnings, err)
	}
}

// TestKumaTuples reads what is not captured of some users.
func TestKumaTuples(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1000": "tcp [] 1000-1000; udp [] 1000-1000", "0": "tcp [] 0-0; udp [] 0-0", "*:*:5-6": "tcp [] 5-6; udp [] 5-6", "80,8000-8010:7": "tcp [80 8000-8010] 7-7; udp [80 8000-8010] 7-7",
		"udp:53:1000650000-1000659999": "udp [53] 1000650000-1000659999", "tcp,udp::7": "tcp [] 7-7; udp [] 7-7", ":90-95,80,92-99:7": "tcp [80 90-99] 7-7; udp [80 90-99] 7-7",
		"TCP:80:1000": "tcp [80] 1000-1000", "tcp, Udp:53:1000": "tcp [53] 1000-1000; udp [53] 1000-1000",
		"": "", "a": "", "1,2": "", "6-5": "", "5-": "", "-5": "", "*": "", "8*0:7": "", "90-80:7": "", "sctp:80:7": "", "tcp,:80:7": "", "x:tcp:80:7": "", "udp:80:7:": "", "4294967296": "", "65536:7": "",
	} {
		list, err := kumaUsers(text)
		var got []string
		for _, e := range list {
			got = append(got, fmt.Sprintf("%s %v %d-%d", e.Protocol, e.Ports, e.UIDs.First, e.UIDs.Last))
		}
		if strings.Join(got, "; ") != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, want %q, %v", text, got, want, err)
		}
	}
	in, _, err := decide(kumaPod("redirect: {outbound: {excludePortsForUIDs: ['udp:53:0'], excludePortsForIPs: ['10.0.0.1,fd00::/8']}}"), withLinkerd(), dualStack)
	if got := Rules(in).String(); err != nil || strings.Count(got, "meta skuid 0 counter return") != 1 || strings.Count(got, "ip daddr 10.0.0.1 counter return") != 2 {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestKumaFaults has annotations that are wrong, or ask for what is not served: the pod fails, by an
// error that names the key and the field.
func TestKumaFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "EOF: expected YAML with the fields of Kuma 3",
		"[]":                              "cannot unmarshal !!seq",
		"a: 1":                            "field a not found",
		"ebpf: {enabled: true}":           "field ebpf not found",
		"redirect: {inbound: {ports: 1}}": "field ports not found",
		"redirect: {}\nredirect: {}":      "already set",
		"{}\n---\n{}":                     "another document follows it",
		"kumaDPUser: kuma-dp":             `kumaDPUser: "kuma-dp": expected a numeric uid`,
		"kumaDPUser: '0'":                 "kumaDPUser: expected a uid from 1",
		"ipFamilyMode: ipv6":              `ipFamilyMode is "ipv6": expected dualstack or ipv4`,
		"dropInvalidPackets: 5":           "cannot unmarshal !!int `5` into bool",
		"redirect: {inbound: {port: 0}}":  `redirect.inbound.port is "0": expected a port from 1`,
		"redirect: {outbound: {port: x}}": `redirect.outbound.port is "x": expected a port`,
		"redirect: {dns: {enabled: true, captureAll: true, port: 0}}":                         `redirect.dns.port is "0": expected a port`,
		"redirect: {dns: {enabled: true, captureAll: true, port: 70000}}":                     `redirect.dns.port is "70000": expected a port`,
		"redirect: {dns: {enabled: true}}":                                                    "redirect.dns.captureAll is false: expected true",
		"redirect: {vnet: {networks: ['br+:172.18.0.0/16']}}":                                 "redirect.vnet.networks is not served: expected none",
		"redirect: {inbound: {insertRedirectInsteadOfAppend: true}}":                          "insertRedirectInsteadOfAppend is not served: expected false",
		"redirect: {outbound: {insertRedirectInsteadOfAppend: true}}":                         "insertRedirectInsteadOfAppend is not served: expected false",
		"redirect: {inbound: {excludePortsForUIDs: ['5']}}":                                   "redirect.inbound.excludePortsForUIDs: expected none",
		"redirect: {outbound: {excludePortsForUIDs: ['5', 'x']}}":                             `redirect.outbound.excludePortsForUIDs: "x": expected PROTOCOLS:PORTS:UID`,
		"redirect: {outbound: {excludePortsForUIDs: 5}}":                                      "cannot unmarshal !!int `5` into []string",
		"redirect: {outbound: {excludePortsForIPs: ['10.0.0.0/33']}}":                         `redirect.outbound.excludePortsForIPs: "10.0.0.0/33": expected a range`,
		"redirect: {inbound: {excludePortsForIPs: ['x']}}":                                    `redirect.inbound.excludePortsForIPs: "x": expected a range`,
		"redirect: {inbound: {excludePorts: [80-90]}}":                                        `redirect.inbound.excludePorts: "80-90": expected a decimal port`,
		"redirect: {inbound: {includePorts: {a: 1}}}":                                         "redirect.inbound.includePorts: ",
		"redirect: {outbound: {includePorts: [[80]]}}":                                        "redirect.outbound.includePorts: ",
		"redirect: {outbound: {excludePorts: '80,'}}":                                         "redirect.outbound.excludePorts: empty element",
		"redirect: {outbound: {excludePortsForUIDs: [" + strings.Repeat("'5',", 251) + "]}}":  "expected at most 500 exemptions (one for each user and protocol), got 502",
		"redirect: {outbound: {excludePorts: [" + strings.Repeat("1,", maxElements) + "]}}":   "expected at most 20000 elements",
		"redirect:\n outbound:\n  excludePorts:\n" + strings.Repeat("  - 1\n", maxElements+1): "redirect.outbound.excludePorts: expected at most 20000 elements, got 20001",
		// Each alias would repeat the text, with gigabytes in all.
		"redirect: {inbound: {excludePorts: &a ',,,'}, outbound: {excludePorts: [*a, *a]}}": "it has an anchor of YAML",
	} {
		_, _, err := decide(kumaPod(text), withLinkerd(), only4)
		expect(t, text[:min(len(text), 90)], err, want)
		if _, ok := errors.AsType[BadInput](err); !ok || !strings.Contains(fmt.Sprint(err), "annotation "+annotationKumaConfig+": ") {
			t.Errorf("%.90s: an error of type %T: %v", text, err, err)
		}
	}
	_, _, err := decide(kumaPod("", func(p *Pod) { delete(p.Annotations, annotationKumaConfig) }), withLinkerd(), only4)
	expect(t, "absent", err, annotationKumaConfig+": it is absent: expected the YAML")
}

// TestKumaExemption exempts what has no proxy, or sets up the capture itself, and refuses who could
// be the proxy.
func TestKumaExemption(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod    Pod
		meshes []config.MeshName
		want   string
	}{
		"captured":            {kumaPod("{}"), config.Meshes(), ""},
		"off":                 {kumaPod("x"), config.DefaultSettings().Meshes, "exempt: no annotation"},
		"not injected":        {kumaPod("{}", func(p *Pod) { delete(p.Annotations, annotationKumaInjected) }), config.Meshes(), "exempt: no annotation"},
		"no proxy":            {kumaPod("{}", func(p *Pod) { p.Containers = p.Containers[2:] }), config.Meshes(), "exempt: no container kuma-sidecar"},
		"init mode":           {kumaPod("{}", withInit(containerKumaInit, netAdmin)), config.Meshes(), "exempt: container kuma-init"},
		"the app has the uid": {kumaPod("{}", func(p *Pod) { p.Containers[2].UID = ID{kumaUID, true} }), config.Meshes(), "container app runs with the proxy's uid 5678"},
		"two meshes":          {kumaPod("{}", annotated(annotationConsulStatus, "x"), func(p *Pod) { p.Containers = append(p.Containers, Container{Name: containerConsulProxy}) }), config.Meshes(), "keys of consul and of kuma"},
		"a fence":             {kumaPod("{}", consulFenced("true")), config.Meshes(), ""},
		"a strict fence":      {kumaPod("{}", consulFenced("strict")), config.Meshes(), ""},
		"strict, a port":      {kumaPod("redirect: {inbound: {excludePorts: [9000]}}", consulFenced("strict")), config.Meshes(), "strict, and inbound ports are excluded"},
		"strict, a user":      {kumaPod("redirect: {outbound: {excludePortsForUIDs: ['5']}}", consulFenced("strict")), config.Meshes(), "strict, and users, ports or destinations are excluded"},
	} {
		settings := config.DefaultSettings()
		settings.Meshes = test.meshes
		_, _, err := decide(test.pod, settings, only4)
		expect(t, name, err, test.want)
	}
	for fence, captured := range map[string]bool{"true": true, "false": false} {
		in, _, err := decide(kumaPod("redirect: {dns: {enabled: true, captureAll: true}}", consulFenced(fence)), withLinkerd(), only4)
		if passes := strings.Contains(Rules(in).String(), "tcp dport 53 counter return"); err != nil || passes == captured {
			t.Errorf("fence %s: TCP to port 53 passes: %v, %v", fence, passes, err)
		}
	}
}

// FuzzKumaConfig passes any text: the result is an error of a known type, or rules that the kernel
// accepts.
func FuzzKumaConfig(f *testing.F) {
	f.Add("redirect: {dns: {enabled: true, captureAll: true}, inbound: {excludePorts: [9000]}, outbound: {excludePortsForUIDs: ['udp:53:1-2'], includePorts: '80,81'}}")
	f.Add("ipFamilyMode: ipv4\nredirect:\n  outbound: {enabled: false, excludePortsForIPs: ['10.0.0.0/8,fd00::1']}\n")
	f.Fuzz(func(t *testing.T, text string) {
		decision, err := decideAt(kumaPod(text), withLinkerd(), dualStack)
		_, bad := errors.AsType[BadInput](err)
		if _, refused := errors.AsType[Refusal](err); err != nil && !bad && !refused || decision.Exemption.Cause != "" {
			t.Fatalf("%+v, an error of type %T: %v", decision.Exemption, err, err)
		}
		if err == nil {
			expectLoadable(t, Rules(decision.Intent))
		}
	})
}
