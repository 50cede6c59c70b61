// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// consulPod returns a pod as Consul's injector makes it, with these further fields of its
// configuration.
func consulPod(fields string, changes ...func(*Pod)) Pod {
	pod := Pod{
		Annotations: map[string]string{
			annotationConsulStatus: "enabled", annotationConsulConfig: `{"ProxyUserID":"5995","ProxyInboundPort":20000` + fields + `}`,
		},
		Containers: []Container{{Name: containerConsulInit, Init: true, UID: ID{Number: 5996}}, {Name: "app", UID: ID{Number: 1000}}, {Name: containerConsulProxy}},
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod.With(nil, pod.Annotations)
}

func dualStackOf(value string) func(*Pod) { return annotated(annotationConsulDualStack, value) }

// TestConsulKeys reads every field as consul-cni does.
func TestConsulKeys(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		"": "20000 [9] 15001 [7] [] uid 5995 exempt [] DNS []",
		`,"ProxyOutboundPort":15101,"ExcludeInboundPorts":["80"," 8080:9000","60000:"],"ExcludeOutboundPorts":[":5","443-445","444"]`: "20000 [9 80 8080-9000 60000-65535] 15101 [0-5 7 443-445] [] uid 5995 exempt [] DNS []",
		`,"ExcludeOutboundCIDRs":["10.1.2.3","10.1.2.3/8"," fd00::1"],"ExcludeUIDs":["0","1000650001","0"],"proxyuserid":" 7 "`:       "20000 [9] 15001 [7] [10.0.0.0/8 fd00::1/128] uid 7 exempt [0 1000650001] DNS []",
		`,"ConsulDNSPort":8600`:                          "20000 [9] 15001 [7] [] uid 5995 exempt [] DNS [{127.0.0.1/32 127.0.0.1:8600}]",
		`,"ConsulDNSPort":8600,"ConsulDNSIP":"10.0.0.5"`: "20000 [9] 15001 [7] [] uid 5995 exempt [] DNS [{10.0.0.5/32 10.0.0.5:8600}]",
		`,"ConsulDNSIP":"10.0.0.5","NetNS":"/x","IptablesProvider":{},"NftablesProvider":null`: "20000 [9] 15001 [7] [] uid 5995 exempt [] DNS [{invalid Prefix 10.0.0.5:0}]",
	} {
		in, warnings, err := decide(consulPod(fields), withLinkerd(), only4)
		var exempt []uint32
		for _, e := range in.Exempt {
			if exempt = append(exempt, e.UIDs.First); e.Protocol != TCP || e.UIDs.First != e.UIDs.Last {
				t.Errorf("%s: %+v", fields, e)
			}
		}
		got := fmt.Sprint(in.InboundPort, in.ExcludeInboundPorts, in.OutboundPort, in.ExcludeOutboundPorts, in.ExcludeOutboundRanges,
			" uid ", in.ProxyUID, " exempt ", exempt, " DNS ", in.Translations)
		if got = strings.ReplaceAll(got, "][", "] ["); err != nil || strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") || len(warnings) > 0 {
			t.Errorf("%s: got %s, want %s; %q, %v", fields, got, want, warnings, err)
		}
	}
	const dns4 = "[{127.0.0.1/32 127.0.0.1:8600}]"
	for text, want := range map[string]string{"": dns4, "True": dns4, "true": "[{127.0.0.1/32 127.0.0.1:8600} {::1/128 [::1]:8600}]"} {
		in, _, err := decide(consulPod(`,"ConsulDNSPort":8600`, dualStackOf(text)), withLinkerd(), dualStack)
		if err != nil || fmt.Sprint(in.Translations) != want || (in.IPv6 == Captured) != (text == "true") {
			t.Errorf("dual-stack %q: %v, IPv6 %q, %v", text, in.Translations, in.IPv6, err)
		}
	}
}

// TestConsulServer exempts queries to the DNS server if a translation would not change them.
func TestConsulServer(t *testing.T) {
	t.Parallel()
	for fields, exempts := range map[string]bool{"": true, `,"ConsulDNSPort":53`: true, `,"ConsulDNSPort":8600`: false} {
		in, _, err := decide(consulPod(`,"ConsulDNSIP":"10.0.0.5"`+fields), withLinkerd(), only4)
		got := strings.Count(Rules(in).String(), "ip daddr 10.0.0.5 tcp dport 53 counter return")
		if err != nil || got != map[bool]int{true: 2}[exempts] {
			t.Errorf("%s: %d rules, %v", fields, got, err)
		}
	}
}

func manyUsers(n int) (uids []string) {
	for uid := range n {
		uids = append(uids, strconv.Itoa(uid))
	}
	return uids
}

// TestConsulFaults has annotations that are wrong: the pod fails, by an error that names the key
// and the field.
func TestConsulFaults(t *testing.T) {
	t.Parallel()
	raw := func(text string) Pod { return consulPod("", annotated(annotationConsulConfig, text)) }
	for want, pod := range map[string]Pod{
		"redirect-traffic-config: it is absent: expected the JSON":    consulPod("", func(p *Pod) { delete(p.Annotations, annotationConsulConfig) }),
		`redirect-traffic-config: "": EOF: expected the JSON`:         raw(""),
		`redirect-traffic-config: "[]": json: cannot unmarshal array`: raw("[]"),
		`"null": ProxyInboundPort is "0": expected a port`:            raw("null"),
		`text follows it: expected the JSON`:                          raw(`{} {}`),
		`json: unknown field "ExcludeUsers"`:                          consulPod(`,"ExcludeUsers":[]`),
		`ProxyInboundPort of type uint16`:                             consulPod(`,"ProxyInboundPort":70000`),
		`ProxyInboundPort is "0": expected a port from 1`:             consulPod(`,"ProxyInboundPort":0`),
		`ProxyUserID: "x": expected a numeric uid`:                    consulPod(`,"ProxyUserID":"x"`),
		`ProxyUserID: expected a uid from 1`:                          consulPod(`,"ProxyUserID":"0"`),
		`ExcludeUIDs: "4294967296": expected a numeric uid`:           consulPod(`,"ExcludeUIDs":["4294967296"]`),
		`ExcludeInboundPorts: "ssh": expected a decimal port`:         consulPod(`,"ExcludeInboundPorts":["80","ssh"]`),
		`ExcludeOutboundPorts: "9-8": expected the lower`:             consulPod(`,"ExcludeOutboundPorts":["9:8"]`),
		`ExcludeInboundPorts: empty element`:                          consulPod(`,"ExcludeInboundPorts":[""]`),
		`ExcludeOutboundCIDRs: "10.0.0.0/33": expected a range`:       consulPod(`,"ExcludeOutboundCIDRs":["10.0.0.0/33"]`),
		`ConsulDNSIP is "::1": expected an IPv6 address with`:         consulPod(`,"ConsulDNSIP":"::1"`),
		`ConsulDNSIP is "x": expected`:                                consulPod(`,"ConsulDNSIP":"x"`),
		`ConsulDNSIP is "10.0.0.1": expected`:                         consulPod(`,"ConsulDNSIP":"10.0.0.1"`, dualStackOf("true")),
		`ConsulDNSIP is "fe80::1%eth0": expected`:                     consulPod(`,"ConsulDNSIP":"fe80::1%eth0"`, dualStackOf("true")),
		`ConsulDNSIP is "::ffff:1.2.3.4": expected`:                   consulPod(`,"ConsulDNSIP":"::ffff:1.2.3.4"`, dualStackOf("true")),
		`exemptions (one for each user and protocol), got 501`:        consulPod(`,"ExcludeUIDs":` + strings.ReplaceAll(fmt.Sprintf("%q", manyUsers(501)), " ", ",")),
		`redirect-traffic-config: "{\"ProxyUserID\"`:                  consulPod(`,"ExcludeUIDs":["1` + strings.Repeat(`","1`, maxElements) + `"]`),
	} {
		_, _, err := decide(pod, withLinkerd(), only4)
		expect(t, want, err, want)
		if _, ok := errors.AsType[BadInput](err); !ok {
			t.Errorf("%s: an error of type %T: %v", want, err, err)
		}
	}
}

// TestConsulExemption exempts what has no proxy, or sets up the capture itself, and refuses who
// could be the proxy.
func TestConsulExemption(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod    Pod
		meshes []config.MeshName
		want   string
	}{
		"captured":               {consulPod(""), config.Meshes(), ""},
		"off":                    {consulPod(""), config.DefaultSettings().Meshes, "exempt: no annotation"},
		"no status":              {consulPod("", func(p *Pod) { delete(p.Annotations, annotationConsulStatus) }), config.Meshes(), "exempt: no annotation"},
		"no proxy":               {consulPod("", func(p *Pod) { p.Containers = p.Containers[:2] }), config.Meshes(), "exempt: no container consul-dataplane"},
		"init mode":              {consulPod("", func(p *Pod) { p.Containers[0].NetAdmin = true }), config.Meshes(), "exempt: container consul-connect-inject-init"},
		"the app has the uid":    {consulPod("", func(p *Pod) { p.Containers[1].UID = ID{5995, true} }), config.Meshes(), "container app runs with the proxy's uid 5995"},
		"another uid of JSON's":  {consulPod(`,"ProxyUserID":"1000"`, func(p *Pod) { p.Containers[1].UID.FromPod = true }), config.Meshes(), "container app runs with the proxy's uid 1000"},
		"a fence":                {consulPod("", consulFenced("true")), config.Meshes(), ""},
		"a fence, DNS on lo":     {consulPod(`,"ConsulDNSPort":8600`, consulFenced("true")), config.Meshes(), ""},
		"a fence, DNS elsewhere": {consulPod(`,"ConsulDNSIP":"10.0.0.1"`, consulFenced("true")), config.Meshes(), "the mesh sends DNS queries to 10.0.0.1, outside the pod"},
		"a strict fence":         {consulPod(`,"ExcludeUIDs":["5996"]`, consulFenced("strict")), config.Meshes(), "strict, and users, ports or destinations are excluded"},
	} {
		settings := config.DefaultSettings()
		settings.Meshes = test.meshes
		_, _, err := decide(test.pod, settings, only4)
		expect(t, name, err, test.want)
	}
}

func consulFenced(value string) func(*Pod) {
	return func(p *Pod) {
		p.Annotations[annotationFence] = value
		for i := range p.Containers {
			p.Containers[i].NoNetRaw, p.Containers[i].NoNewPrivileges = true, true
		}
	}
}

// FuzzConsulConfig passes any text: the result is an error of a known type, or rules that the
// kernel accepts.
func FuzzConsulConfig(f *testing.F) {
	f.Add(`{"ProxyUserID":"5995","ProxyInboundPort":20000,"ConsulDNSPort":8600,"ExcludeUIDs":["5996"]}`, "true")
	f.Add(`{"ProxyUserID":"1","ProxyInboundPort":1,"ConsulDNSIP":"10.0.0.1","ExcludeInboundPorts":["1:2"],"ExcludeOutboundCIDRs":["10.0.0.0/8"]}`, "")
	f.Fuzz(func(t *testing.T, text, dual string) {
		decision, err := decideAt(consulPod("", annotated(annotationConsulConfig, text), dualStackOf(dual)), withLinkerd(), dualStack)
		_, bad := errors.AsType[BadInput](err)
		if _, refused := errors.AsType[Refusal](err); err != nil && !bad && !refused || decision.Exemption.Cause != "" {
			t.Fatalf("%+v, an error of type %T: %v", decision.Exemption, err, err)
		}
		if err == nil {
			expectLoadable(t, Rules(decision.Intent))
		}
	})
}
