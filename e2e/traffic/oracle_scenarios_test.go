// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// oraclePods is how many pods TestOracleRandomPods draws.
const oraclePods = 24

// istioInitArgs are for a scenario whose settings istio-cni lacks: as arguments of
// istio-init.
var istioInitArgs = map[string][]string{
	"the mesh's settings": {
		"-p", "16001", "-z", "16006", "-e", "16008", "-u", "3000", "-g", "3001", "-m", "REDIRECT", "-b", "*", "-d", "15021,15020,15090,9000",
		"-i", "*", "-x", "10.1.0.0/16,2001:db8:1::/48", "-o", "15020,9001",
	},
}

// beyondIstio are scenarios that can't be requested of Istio.
var beyondIstio = map[string]string{
	"DNS, the mesh's port": "Istio's DNS port is always 15053",
}

// TestOracleScenarios has Istio's own plugin capture the pods of TestScenarios, with and
// without dual stack, sends the same packets in both namespaces, and wants the same
// decisions.
func TestOracleScenarios(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	plugin := newIstioCNI(t)
	for _, s := range scenarios {
		if beyondIstio[s.name] != "" {
			continue
		}
		for dualStack, name := range map[string]string{"true": s.name, "false": s.name + ", not dual stack"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pod, settings := s.podForIstio(dualStack), config.DefaultSettings()
				s.set(&settings)
				o := &oracle{intent: intentOf(t, pod, settings), mesh: settings.Mesh, ports: ports(s.probes), owners: ownersOf(s.probes)}
				o.theirs = func(host *lab.Host) error { return plugin.add(host, pod, environmentOf(settings.Mesh)...) }
				if args := istioInitArgs[s.name]; args != nil {
					o.theirs = func(host *lab.Host) error {
						return istioInit(t, host, append(environmentOf(settings.Mesh), "ISTIO_DUAL_STACK="+dualStack), args...)
					}
				}
				o.compare(t)
			})
		}
	}
}

// TestOracleRandomPods does the same with random pods.
func TestOracleRandomPods(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	plugin := newIstioCNI(t)
	for n := range uint64(oraclePods) {
		t.Run(fmt.Sprintf("pod %d of seed %d", n, *seed), func(t *testing.T) {
			t.Parallel()
			pod, settings := randomPod(rand.New(rand.NewPCG(*seed, n)))
			trimLists(pod)
			o := &oracle{intent: intentOf(t, pod, settings), mesh: settings.Mesh, ports: []int{9000}, owners: []lab.Owner{{UID: 1000, GID: 5}}}
			o.theirs = func(host *lab.Host) error { return plugin.add(host, pod, environmentOf(settings.Mesh)...) }
			o.compare(t)
			if t.Failed() {
				t.Logf("%v %v\n%s", pod.Annotations, pod.Spec.Containers[1].Env, capture.Rules(o.intent))
			}
		})
	}
}

// podForIstio is a scenario's pod; dualStack is what its proxy is told, true or false.
func (s scenario) podForIstio(dualStack string) *corev1.Pod {
	pod := s.injected()
	proxy := &pod.Spec.Containers[1]
	proxy.Env = append(proxy.Env, corev1.EnvVar{Name: "ISTIO_DUAL_STACK", Value: dualStack})
	trimLists(pod)
	return pod
}

// trimLists removes white space, which Istio's plugin refuses in some lists.
func trimLists(pod *corev1.Pod) {
	for key, value := range pod.Annotations {
		pod.Annotations[key] = strings.ReplaceAll(value, " ", "")
	}
}

// environmentOf returns the settings of a mesh that Istio's programs read from their
// environment.
func environmentOf(mesh config.Mesh) []string {
	environment := []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=" + mesh.LoopbackCIDR.String()}
	if len(mesh.OutboundOwnerGroups) > 0 {
		return append(environment, "ISTIO_OUTBOUND_OWNER_GROUPS="+listed(mesh.OutboundOwnerGroups))
	}
	return append(environment, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE="+listed(mesh.OutboundOwnerGroupsExclude))
}

func listed(ids []uint32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func intentOf(t *testing.T, pod *corev1.Pod, settings config.Settings) capture.Intent {
	t.Helper()
	decision, err := lab.Decide(pod, settings, netip.MustParseAddr(podIP[ipv4]), netip.MustParseAddr(podIP[ipv6]))
	lab.Check(t, err)
	return decision.Intent
}

func ownersOf(probes []probe) (owners []lab.Owner) {
	for _, p := range probes {
		if !slices.Contains(append(oracleOwners, owners...), p.by) {
			owners = append(owners, p.by)
		}
	}
	return owners
}
