// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var (
	soak = flag.Duration("soak", 0, "how long TestParity and, for each backend, TestTrace draw pods, instead of a fixed number of them; "+
		"TestExpanded draws ten large ones")
	seed = flag.Uint64("seed", 1, "where TestParity, TestTrace and TestExpanded begin to draw")
)

// parityPods is how many pods TestParity draws, parityPackets how many packets each of them
// meets. They are few, because TestTrace compares each backend with the evaluator: only the
// proxy's view of a connection is compared here alone.
const (
	parityPods    = 12
	parityPackets = 40
)

// parityPorts are served everywhere; each decides something in some pod.
var parityPorts = []int{53, 80, 443, 8080, 9000, 15008, 15020, 15021, 15090}

// TestParity draws pods that ask for random things, and packets, and wants all
// backends to decide alike about each.
func TestParity(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	worlds := map[config.Backend]world{}
	for _, backend := range backends {
		worlds[backend] = newProbeWorld(t, parityPorts, istioMesh)
	}
	answers := map[string]int{}
	start := time.Now()
	for n := uint64(0); *soak == 0 && n < parityPods || *soak > 0 && time.Since(start) < *soak; n++ {
		r := rand.New(rand.NewPCG(*seed, n))
		pod, settings := randomPod(r)
		rs := decide(t, pod, settings)
		for backend, w := range worlds {
			apply := open(t, w.pod, backend)
			lab.Check(t, apply.Apply(rs))
			if differences, err := apply.Check(rs); err != nil || len(differences) > 0 {
				t.Errorf("%s: a check finds %q (%v)", backend, differences, err)
			}
			lab.Check(t, apply.Close())
		}
		for range parityPackets {
			p := randomProbe(r)
			f := family(r.IntN(2))
			want := worlds[config.NFTables].meet(p, f)
			who, _, _ := strings.Cut(want, ", for ")
			answers[who]++
			for _, backend := range iptablesBackends {
				if got := worlds[backend].meet(p, f); got != want {
					t.Errorf("pod %d of seed %d: %s %+v: answered by %s with %s, by %s with nftables\n%v %v\n%s",
						n, *seed, f, p, got, backend, want, pod.Annotations, pod.Spec.Containers[1].Env, rs)
				}
			}
		}
		for backend, w := range worlds {
			netns := open(t, w.pod, backend)
			lab.Check(t, netns.Remove())
			lab.Check(t, netns.Close())
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", answers)
	for _, answer := range []string{outbound, inbound, resolver, direct} {
		if answers[answer] == 0 {
			t.Errorf("nothing was answered by %s", answer)
		}
	}
}

// meet returns which process answers, and the original destination that the proxy
// sees; or why none does.
func (w world) meet(p probe, f family) string {
	answer, _, err := w.ask(p, f)
	switch {
	case answer.Server == "":
		return "nobody: " + kind(err)
	case err != nil || answer.Server == direct || p.udp:
		return answer.Server
	}
	return fmt.Sprintf("%s, for %s", answer.Server, answer.OriginalDst)
}

// kind returns the end of an error's text, which has no addresses.
func kind(err error) string {
	text := fmt.Sprint(err)
	return text[strings.LastIndex(text, ": ")+1:]
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// some draws a list from all that is given, often an empty one.
func some(r *rand.Rand, from ...string) string {
	r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	return strings.Join(from[:r.IntN(len(from)+1)], pick(r, ",", ", "))
}

func randomPod(r *rand.Rand) (*corev1.Pod, config.Settings) {
	ports := func() string {
		list := []string{"53", "80", "443", "8080", "9000", "15008", "15020", "15021", "15090"}
		for range r.IntN(3) * 20 { // more than iptables takes into one rule
			list = append(list, fmt.Sprint(20_000+r.IntN(10_000)))
		}
		return some(r, list...)
	}
	ranges := func() string {
		return some(r, "10.77.0.0/24", "fd77::/64", "9.9.9.9/32", "2001:db8:9::9/128", "10.0.0.0/8", "2001:db8::/32", "10.1.2.3/32", "fd00::/8", "0.0.0.0/1", "127.0.0.0/8", "::1/128")
	}
	interfaces := func() string { return some(r, "net1", "net2", "lo") }
	// Drawn in a fixed order, so that a seed says which pod it is.
	annotations := map[string]string{}
	for _, key := range []struct {
		name string
		draw func() string
	}{
		{"includeInboundPorts", func() string { return pick(r, "*", "*", ports()) }},
		{"excludeInboundPorts", ports},
		{"includeOutboundPorts", ports},
		{"excludeOutboundPorts", ports},
		{"includeOutboundIPRanges", func() string { return pick(r, "*", "*", ranges()) }},
		{"excludeOutboundIPRanges", ranges},
		{"excludeInterfaces", interfaces},
		{"istio.io/reroute-virtual-interfaces", interfaces},
		{"sidecar.istio.io/interceptionMode", func() string { return pick(r, "REDIRECT", "TPROXY") }},
	} {
		if value := key.draw(); r.IntN(3) > 0 {
			annotations[key.name] = value
		}
	}
	env := map[string]string{}
	for _, name := range []string{"ISTIO_META_DNS_CAPTURE", "INVALID_DROP", "ISTIO_DUAL_STACK"} {
		env[name] = pick(r, "true", "true", "false")
	}
	settings := config.DefaultSettings()
	settings.Mesh.LoopbackCIDR = pick(r, settings.Mesh.LoopbackCIDR, netip.MustParsePrefix("127.0.0.0/8"))
	settings.Mesh.OutboundOwnerGroups = pick(r, nil, nil, []uint32{1000}, []uint32{1000, 1337, 5})
	settings.Mesh.OutboundOwnerGroupsExclude = pick(r, nil, []uint32{0}, []uint32{0, 5})
	return injected(spelled(annotations), env), settings
}

func randomProbe(r *rand.Rand) probe {
	p := probe{
		by:   lab.Owner{UID: pick(r, 0, 1000, 1337), GID: pick(r, 0, 5, 1000, 1337)},
		to:   pick(r, external, included, excluded, podIP, secondIP, secondPeer, localhost, otherLocal, serviceVIP),
		port: pick(r, parityPorts...),
		udp:  r.IntN(4) == 0,
	}
	if r.IntN(3) == 0 {
		return probe{remote: true, to: pick(r, podIP, secondIP), port: p.port, udp: p.udp}
	}
	if p.to == podIP && r.IntN(4) == 0 {
		p.from = proxySource
	}
	return p
}
