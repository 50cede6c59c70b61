// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// ownPod returns a pod with keys of our own, and a proxy.
func ownPod(keys map[string]string, changes ...func(*Pod)) Pod {
	pod := Pod{
		Annotations: map[string]string{annotationProxy: "proxy"},
		Containers:  []Container{{Name: "app", UID: ID{Number: 1000}}, {Name: "proxy", UID: ID{Number: 3128}}},
	}
	for key, value := range keys {
		pod.Annotations[annotationOwn+key] = value
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod.With(nil, pod.Annotations)
}

type keys = map[string]string

// TestOwnKeys reads every key.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.Mesh.ExcludeInboundPorts, settings.Mesh.ExcludeOutboundPorts = []uint16{9}, []uint16{7}
	for want, set := range map[string]keys{
		"in 0 [9] out 3129 [7] {true []} [] dns false 0 tproxy false": {"outbound-port": "3129"},
		"in 8443 [9] out 0 [7] {false []} [] dns false 0 tproxy true": {"inbound-port": "8443", "tproxy": "true"},
		"in 0 [9] out 0 [7] {false []} [] dns true 5353 tproxy false": {"dns-port": "5353"},
		"in 8443 [9-12] out 3129 [7 25 5000-5010] {false [10.0.0.0/8]} [10.1.0.0/16] dns false 0 tproxy false": {
			"inbound-port": "8443", "outbound-port": "3129", "exclude-inbound-ports": "10-12, 9-11", "exclude-outbound-ports": "5000-5010,25",
			"include-outbound-ranges": "10.0.0.0/8", "exclude-outbound-ranges": "10.1.0.0/16", "tproxy": "false",
		},
	} {
		in, warnings, err := decide(ownPod(set), settings, only4)
		got := fmt.Sprint("in ", in.InboundPort, " ", in.ExcludeInboundPorts, " out ", in.OutboundPort, " ", in.ExcludeOutboundPorts, " ", in.OutboundRanges, " ", in.ExcludeOutboundRanges,
			" dns ", in.CaptureDNS, " ", in.DNSPort, " tproxy ", in.Transparent)
		if err != nil || len(warnings) > 0 || got != want || in.ProxyUID != 3128 || in.ProxyGID != 0 || in.InboundPorts.All != (in.InboundPort != 0) {
			t.Errorf("%v: got %s, warnings %q, %v; want %s", set, got, warnings, err, want)
		}
	}
}

// TestOwnFaults has keys that are wrong, unknown or without effect: the pod fails, and never
// passes.
func TestOwnFaults(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]keys{
		`annotation capture-cni.io/outbound-prot: there is no such key`:                   {"outbound-port": "1", "outbound-prot": "1"},
		`capture-cni.io/outbound-port: "0": expected a port from 1`:                       {"outbound-port": "0"},
		`capture-cni.io/inbound-port: "http": expected a port`:                            {"inbound-port": "http"},
		`capture-cni.io/dns-port: "": expected a port`:                                    {"dns-port": ""},
		`capture-cni.io/tproxy: "yes": expected true or false`:                            {"inbound-port": "1", "tproxy": "yes"},
		`capture-cni.io/tproxy: "": expected true or false`:                               {"inbound-port": "1", "tproxy": ""},
		`capture-cni.io/tproxy: "false": it has no effect without capture-cni.io/inbound`: {"outbound-port": "1", "tproxy": "false"},
		`exclude-inbound-ports: "1": it has no effect without`:                            {"outbound-port": "1", "exclude-inbound-ports": "1"},
		`exclude-outbound-ports: "1": it has no effect without`:                           {"inbound-port": "1", "exclude-outbound-ports": "1"},
		`exclude-outbound-ranges: "10.0.0.0/8": it has no effect without`:                 {"dns-port": "1", "exclude-outbound-ranges": "10.0.0.0/8"},
		`include-outbound-ranges: "*": it has no effect without`:                          {"dns-port": "1", "include-outbound-ranges": "*"},
		`exclude-inbound-ports: "5-4": "5-4": expected the lower port first`:              {"inbound-port": "1", "exclude-inbound-ports": "5-4"},
		`include-outbound-ranges: "10.0.0.1"`:                                             {"outbound-port": "1", "include-outbound-ranges": "10.0.0.1"},
		`dns-port: "1": it has no effect: port 53`:                                        {"dns-port": "1", "exclude-outbound-ports": "50-60"},
		`include-outbound-ranges: "": expected * or ranges`:                               {"outbound-port": "1", "include-outbound-ranges": ""},
		`include-outbound-ranges: "127.0.0.0/8": expected * or ranges, none of loopback`:  {"outbound-port": "1", "include-outbound-ranges": "127.0.0.0/8"},
		"nothing would be captured":                                                       {},
		`capture-cni.io/proxy: "envoy": the pod has no such container`:                    {"outbound-port": "1", "proxy": "envoy"},
		`capture-cni.io/proxy: "": the pod has no such container`:                         {"outbound-port": "1", "proxy": ""},
	} {
		_, _, err := decide(ownPod(set), config.DefaultSettings(), only4)
		expect(t, fmt.Sprint(set), err, want)
		if _, ok := errors.AsType[BadInput](err); !ok {
			t.Errorf("%v: an error of type %T: %v", set, err, err)
		}
	}
	alone := ownPod(keys{"outbound-port": "1"}, func(p *Pod) { delete(p.Annotations, annotationProxy) })
	_, _, err := decide(alone, config.DefaultSettings(), only4)
	expect(t, "no proxy", err, "annotation capture-cni.io/proxy: it is absent: expected the name of the proxy's container")
}

// TestOwnIdentity needs a uid of the proxy that no process of another container can have,
// whatever the settings say.
func TestOwnIdentity(t *testing.T) {
	t.Parallel()
	of := func(name string, changes ...func(*Container)) func(*Pod) {
		return func(p *Pod) {
			for _, change := range changes {
				change(p.container(name))
			}
		}
	}
	for name, test := range map[string]struct {
		change func(*Pod)
		want   string
	}{
		"the image decides on the proxy's": {of("proxy", runsAs(0, 0)), `container "proxy" sets no numeric uid`},
		"another container has it":         {of("app", runsAs(3128, 0)), "container app runs with the proxy's uid 3128"},
		"the image decides on another's":   {of("app", runsAs(0, 5)), "container app sets no uid"},
		"one that ends before the proxy":   {withInit("setup"), "container setup sets no uid"},
		"one of Istio's name":              {withInit(containerValidation, runsAs(3128, 0)), "container istio-validation runs with the proxy's uid"},
		"one of Istio's name, next to a proxy of Istio's": {func(p *Pod) {
			p.container("proxy").Name, p.Annotations[annotationProxy] = containerProxy, containerProxy
			withInit(containerValidation, runsAs(3128, 0))(p)
		}, "container istio-validation runs with the proxy's uid"},
		"a sidecar before the proxy": {withInit("logger", keepsRunning), "container logger sets no uid"},
		"another gid":                {of("app", runsAs(5, 3128)), ""},
	} {
		_, _, err := decide(ownPod(keys{"inbound-port": "1"}, test.change), config.DefaultSettings(), only4)
		expect(t, name, err, test.want)
		if _, ok := errors.AsType[Refusal](err); ok != (test.want != "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOwnFamilies captures the families that the pod has.
func TestOwnFamilies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy  config.IPv6Policy
		has6    bool
		treated Treatment
		noted   bool
	}{
		{config.IPv6Mesh, true, Captured, false},
		{config.IPv6Mesh, false, Refused, false},
		{config.IPv6Always, true, Captured, false},
		{config.IPv6Never, true, Ignored, true},
		{config.IPv6Never, false, Refused, false},
	} {
		settings, addresses := config.DefaultSettings(), only4
		settings.IPv6 = test.policy
		if test.has6 {
			addresses = dualStack
		}
		decision, err := decideAt(ownPod(keys{"inbound-port": "1"}), settings, addresses)
		if err != nil || decision.Intent.IPv6 != test.treated || (len(decision.Notes) > 0) != test.noted || strings.Contains(fmt.Sprint(decision.Notes), ", and") {
			t.Errorf("%+v: got %q, notes %q, %v", test, decision.Intent.IPv6, decision.Notes, err)
		}
	}
}

// FuzzOwnKeys passes any values: the result is an error of a known type, or rules that the
// kernel accepts. No pod with such a key is exempt.
func FuzzOwnKeys(f *testing.F) {
	f.Add("proxy", "8443", "3129", "5353", "true", "9000-9010, 1", "10.0.0.0/8")
	f.Add("", "", "x", "0", "false", "1-,5-4,0", "*")
	f.Fuzz(func(t *testing.T, proxy, inbound, outbound, dns, tproxy, ports, ranges string) {
		pod := ownPod(keys{
			"proxy": proxy, "inbound-port": inbound, "outbound-port": outbound, "dns-port": dns, "tproxy": tproxy,
			"exclude-inbound-ports": ports, "exclude-outbound-ports": ports, "include-outbound-ranges": ranges,
		})
		decision, err := decideAt(pod, config.DefaultSettings(), dualStack)
		_, bad := errors.AsType[BadInput](err)
		if _, refused := errors.AsType[Refusal](err); err != nil && !bad && !refused || decision.Exemption.Cause != "" {
			t.Fatalf("%+v, an error of type %T: %v", decision.Exemption, err, err)
		}
		if err == nil {
			expectLoadable(t, Rules(decision.Intent))
		}
	})
}

// TestOthersEarlyContainers warns of a container that starts before the proxy, without advice that
// would be refused.
func TestOthersEarlyContainers(t *testing.T) {
	t.Parallel()
	early := withInit("setup", runsAs(5, 0))
	asNative := func(name string) func(*Pod) {
		return func(p *Pod) {
			proxy := *p.container(name)
			p.Containers = slices.DeleteFunc(p.Containers, func(c Container) bool { return c.Name == name })
			withInit(name, func(c *Container) { c.UID, c.Env, c.KeepsRunning = proxy.UID, proxy.Env, true })(p)
		}
	}
	own := keys{"outbound-port": "1"}
	const asUID = ", or run it with the proxy's uid 2102"
	for name, test := range map[string]struct {
		pod  Pod
		want string // "" for none
	}{
		"keys of our own": {
			ownPod(own, early), "setup starts before proxy, so its captured connections fail: make proxy a native sidecar before it",
		},
		"keys of our own, native":        {ownPod(own, early, asNative("proxy")), "fail: move proxy before it"},
		"keys of our own, native, first": {ownPod(own, asNative("proxy"), early), ""},
		"Linkerd":                        {linkerdPod(early), "fail: make linkerd-proxy a native sidecar before it" + asUID},
		"Linkerd, native":                {linkerdPod(early, asNative(containerLinkerdProxy)), "fail: move linkerd-proxy before it" + asUID},
		"Linkerd, native, first":         {linkerdPod(asNative(containerLinkerdProxy), early), ""},
	} {
		_, warnings, err := decide(test.pod, withLinkerd(), only4)
		if err != nil || (len(warnings) > 0) != (test.want != "") || len(warnings) > 0 && !strings.HasSuffix(warnings[0], test.want) {
			t.Errorf("%s: got %q, %v, want %q", name, warnings, err, test.want)
		}
	}
}
