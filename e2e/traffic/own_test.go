// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"os"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// sidecarProxy is the user of the proxy that our own keys name, and sidecarGroup one process
// with its group alone.
var (
	sidecarProxy = lab.Owner{UID: 3128, GID: 3128}
	sidecarGroup = lab.Owner{UID: 1000, GID: 3128}
)

// sidecarPod is a pod with keys of our own.
func sidecarPod(keys map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{"capture-cni.io/proxy": "sidecar"}
	for key, value := range keys {
		pod.Annotations["capture-cni.io/"+key] = value
	}
	ids := map[string]int64{"web": 1000, "sidecar": 3128}
	for _, name := range []string{"web", "sidecar"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, SecurityContext: &corev1.SecurityContext{RunAsUser: new(ids[name])}})
	}
	return pod
}

// ownScenarios are what such pods ask for, and what connections then meet.
var ownScenarios = map[string]struct {
	keys   map[string]string
	probes []probe
}{
	"an egress proxy": {
		keys: map[string]string{"outbound-port": "15001", "exclude-outbound-ports": "8000-8090", "exclude-outbound-ranges": excluded[ipv4] + "/32," + excluded[ipv6] + "/128"},
		probes: []probe{
			out(app, external, 80, outbound), out(rootUser, external, 80, outbound), out(sidecarGroup, external, 80, outbound), out(sidecarProxy, external, 80, direct),
			out(app, external, 8080, direct), out(app, external, 8091, outbound), out(app, excluded, 80, direct), udp(out(app, external, 53, direct)),
			out(app, localhost, 8080, direct), out(app, podIP, 80, direct), out(sidecarProxy, podIP, 80, direct), in(podIP, 80, direct),
		},
	},
	"an inbound proxy": {
		keys: map[string]string{"inbound-port": "15006", "exclude-inbound-ports": "9000-9010"},
		probes: []probe{
			in(podIP, 80, inbound), in(secondIP, 8080, inbound), in(podIP, 9000, direct), in(podIP, 9010, direct), in(podIP, 9011, inbound), in(podIP, 15020, inbound),
			out(app, external, 80, direct), out(sidecarProxy, podIP, 80, direct), out(sidecarProxy, localhost, 80, direct), out(app, podIP, 80, direct),
			udp(in(podIP, 8080, direct)),
		},
	},
	"ranges and DNS": {
		keys: map[string]string{"outbound-port": "15001", "include-outbound-ranges": included[ipv4] + "/32," + included[ipv6] + "/128", "dns-port": "15053"},
		probes: []probe{
			out(app, included, 80, outbound), out(app, external, 80, direct), out(app, external, 53, resolver), udp(out(app, external, 53, resolver)),
			udp(out(app, localhost, 53, resolver)), udp(out(sidecarProxy, external, 53, direct)), out(sidecarProxy, included, 80, direct),
			udp(out(app, external, 80, direct)), in(podIP, 80, direct),
		},
	},
	"TPROXY": {
		keys: map[string]string{"inbound-port": "15006", "outbound-port": "15001", "tproxy": "true", "exclude-inbound-ports": "9000"},
		probes: []probe{
			in(podIP, 80, inbound), in(secondIP, 8080, inbound), in(podIP, 9000, direct), out(app, external, 80, outbound),
			out(app, podIP, 80, direct), out(sidecarProxy, podIP, 80, direct), out(sidecarProxy, external, 80, direct), out(app, localhost, 80, direct),
		},
	},
}

// TestOwnKeys proves the keys of our own by packets.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newOwnWorld(t)
		for name, s := range ownScenarios {
			t.Run(name, func(t *testing.T) {
				w.capture(t, backend, decide(t, sidecarPod(s.keys), config.DefaultSettings()))
				w.probeAll(t, s.probes...)
			})
		}
	})
}

// newOwnWorld makes a world with the proxy that our own keys name.
func newOwnWorld(t *testing.T) world {
	t.Helper()
	var probes []probe
	for _, s := range ownScenarios {
		probes = append(probes, s.probes...)
	}
	for _, example := range examples {
		probes = append(probes, example.probes...)
	}
	mesh := istioMesh
	mesh.ProxyUID, mesh.ProxyGID = uint32(sidecarProxy.UID), uint32(sidecarProxy.GID)
	return newProbeWorld(t, ports(probes), mesh)
}

// examples are the pods of the page, each with what its connections meet.
var examples = []struct {
	name   string
	probes []probe
}{
	{"both directions", []probe{
		out(app, external, 80, outbound), out(sidecarProxy, external, 80, direct), out(app, serviceVIP, 80, inbound),
		in(podIP, 80, inbound), in(podIP, 9005, direct), out(sidecarProxy, localhost, 80, direct),
	}},
}

// TestExamples captures the pods of the reference's page as they are written.
func TestExamples(t *testing.T) {
	t.Parallel()
	pods := examplesOf(t, "sidecars.md", len(examples))
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newOwnWorld(t)
		for i, example := range examples {
			t.Run(example.name, func(t *testing.T) {
				w.capture(t, backend, decide(t, pods[i], config.DefaultSettings()))
				for _, p := range example.probes {
					w.probe(t, p, ipv4) // the example's range is of IPv4
				}
			})
		}
	})
}

// examplesOf reads the pods of a page of the reference.
func examplesOf(t *testing.T, page string, want int) (pods []*corev1.Pod) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/reference/" + page)
	lab.Check(t, err)
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		pods = append(pods, &corev1.Pod{})
		lab.Check(t, yaml.UnmarshalStrict([]byte(block[1]), pods[len(pods)-1]))
	}
	if len(pods) != want {
		t.Fatalf("%s has %d examples, want %d", page, len(pods), want)
	}
	return pods
}
