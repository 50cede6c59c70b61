// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

var (
	four = netip.MustParseAddr("10.77.0.2")
	six  = netip.MustParseAddr("fd77::2")
)

// rulesets returns rules of every kind, by the name of the pod that asks for them.
func rulesets(t *testing.T) map[string]capture.Ruleset {
	t.Helper()
	traffic := "traffic.sidecar.istio.io/"
	tproxy := map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"}
	captureDNS := map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}
	exclusions := map[string]string{
		traffic + "excludeInboundPorts": "6000,7000", traffic + "excludeOutboundPorts": "3306,5432", traffic + "includeOutboundPorts": "9000",
		traffic + "includeOutboundIPRanges": "9.9.0.0/16,2001:db8::/32", traffic + "excludeOutboundIPRanges": "9.9.1.0/24,9.9.3.0/24,2001:db8:1::/48",
		traffic + "excludeInterfaces": "net1,net2", "istio.io/reroute-virtual-interfaces": "k6t-eth0",
	}
	everything := map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true", "ISTIO_DUAL_STACK": "true"}
	groups := config.DefaultSettings()
	groups.Mesh.OutboundOwnerGroups = []uint32{7, 202}
	notGroups := config.DefaultSettings()
	notGroups.Mesh.OutboundOwnerGroupsExclude = []uint32{7, 202}
	tproxyExclusions := maps.Clone(exclusions)
	maps.Copy(tproxyExclusions, tproxy)
	byName := map[string]capture.Ruleset{}
	for name, pod := range map[string]struct {
		annotations, env map[string]string
		settings         config.Settings
		addresses        []netip.Addr
	}{
		"REDIRECT":                 {nil, nil, config.DefaultSettings(), []netip.Addr{four, six}},
		"IPv4 alone":               {nil, nil, config.DefaultSettings(), []netip.Addr{four}},
		"IPv6 alone":               {nil, nil, config.DefaultSettings(), []netip.Addr{six}},
		"DNS":                      {nil, captureDNS, config.DefaultSettings(), []netip.Addr{four, six}},
		"exclusions":               {exclusions, everything, config.DefaultSettings(), []netip.Addr{four, six}},
		"owner groups":             {nil, captureDNS, groups, []netip.Addr{four, six}},
		"excluded owner groups":    {nil, captureDNS, notGroups, []netip.Addr{four, six}},
		"inbound ports":            {map[string]string{traffic + "includeInboundPorts": "80,8080"}, nil, config.DefaultSettings(), []netip.Addr{four, six}},
		"TPROXY":                   {tproxy, nil, config.DefaultSettings(), []netip.Addr{four, six}},
		"TPROXY, IPv4 alone":       {tproxy, captureDNS, config.DefaultSettings(), []netip.Addr{four}},
		"TPROXY with exclusions":   {tproxyExclusions, everything, config.DefaultSettings(), []netip.Addr{four, six}},
		"TPROXY with owner groups": {tproxy, everything, groups, []netip.Addr{four, six}},
	} {
		decision, err := lab.Decide(meshed(pod.annotations, pod.env), pod.settings, pod.addresses...)
		lab.Check(t, err)
		byName[name] = capture.Rules(decision.Intent)
	}
	return byName
}

// meshed is a pod as the injector leaves it.
func meshed(annotations, env map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(pod.Annotations, annotations)
	sidecar := corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}
	for name, value := range env {
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: name, Value: value})
	}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, sidecar}
	return pod
}
