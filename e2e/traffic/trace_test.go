// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// tracePods is how many pods TestTrace draws, tracePackets how many packets each of them
// meets: 4,000 for each backend. Each mutant of the evaluator dies before the tenth pod.
const (
	tracePods    = 30
	otherPods    = 10 // of other meshes, after them
	tracePackets = 100
)

// countingAll returns rules that all have a counter.
func countingAll(rs capture.Ruleset) capture.Ruleset {
	for _, chain := range rs.Chains {
		for i := range chain.Rules {
			chain.Rules[i].PerPacket = false
		}
	}
	return rs
}

// TestTrace draws pods and packets, and wants the evaluator to decide about each as the
// kernel does, with every backend. With nftables, the kernel's counters prove the path:
// each rule of nat and of DNS zones has counted the packets that the evaluator led to it.
func TestTrace(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newTraceWorld(t)
		verdicts := map[string]int{}
		start := time.Now()
		for n := uint64(0); *soak == 0 && n < tracePods+otherPods || *soak > 0 && time.Since(start) < *soak; n++ {
			r := rand.New(rand.NewPCG(*seed, n))
			pod, settings := randomPod(r)
			switch {
			case n%(tracePods+otherPods) >= tracePods:
				if pod, settings = randomOtherPod(r), linkerdSettings(); n%5 == 4 {
					fence(pod)
				}
			case n%5 == 4:
				fence(pod).Annotations["capture-cni.io/fence-allow"] = some(r, slices.Clone(randomOpenings)...)
			}
			rs := countingAll(decide(t, pod, settings))
			netns := open(t, w.pod, backend)
			lab.Check(t, netns.Apply(rs))
			counted := counters{}
			shots := randomShots(r, rs)
			for _, s := range shots {
				if trace.Of(rs, s.packet()).Verdict == capture.Drop {
					s.request.Limit = 100 * time.Millisecond // for an answer that is not expected
				}
			}
			for _, s := range w.send(t, shots) {
				trace := trace.Of(rs, s.packet())
				want, got := verdictOf(trace), s.met()
				verdicts[want]++
				counted.add(trace)
				// A connection to the proxy's own port looks like TPROXY if nat redirects it, or leaves it alone.
				looksAlike := got == "tproxy 15006" && (want == "redirect 15006" || want == "passes") && s.request.To.Port() == istioMesh.InboundPort
				if got != want && !looksAlike {
					t.Errorf("pod %d of seed %d: %s by the kernel (%v), %s by the evaluator\n%v %v\n%s\n%s",
						n, *seed, got, s.reply.Err, want, pod.Annotations, pod.Spec.Containers[1].Env, trace.Text(), rs)
				}
			}
			if backend == config.NFTables {
				counted.compare(t, rs, readCounters(t, w.pod))
			}
			lab.Check(t, netns.Remove())
			lab.Check(t, netns.Close())
			lab.Check(t, w.pod.Do(func() error { return kernel.FlushEntries(t.Context()) }))
			if t.Failed() {
				t.Fatalf("pod %d of seed %d, %v", n, *seed, pod.Annotations)
			}
		}
		t.Logf("%v", verdicts)
		for verdict, least := range map[string]int{
			"passes": tracePods, "redirect 15001": tracePods, "redirect 15006": tracePods, "redirect 15053": tracePods, "tproxy 15006": tracePods,
			"drop 0": tracePods / 3, "reject 0": tracePods / 3,
		} {
			if verdicts[verdict] < least {
				t.Errorf("%d packets met %s: too few", verdicts[verdict], verdict)
			}
		}
	})
}

// randomOtherPod is one of Consul's or Kuma's, with the ports and the user of Istio's proxy. No
// client is excluded, because a client whose connection is refused may have any address.
func randomOtherPod(r *rand.Rand) *corev1.Pod {
	if r.IntN(2) == 0 {
		asked := randomKumaPod(r)
		asked.user, asked.clients = int(istioMesh.ProxyUID), nil
		return asked.pod()
	}
	asked := randomConsulPod(r)
	asked.ProxyUserID, asked.ProxyInboundPort, asked.ConsulDNSIP, asked.ConsulDNSPort = "1337", int(istioMesh.InboundPort), "", int(istioMesh.DNSPort)
	return asked.pod()
}

// randomOpenings are exceptions of a fence, some of which the packets meet.
var randomOpenings = []string{
	"out:udp:53@10.77.0.0/24", "out:udp:1-65535@fd77::/64", "out:tcp:80-9000@0.0.0.0/1", "out:tcp:443@2001:db8::/32",
	"in:udp:8080@0.0.0.0/0", "in:tcp:8080-9000@10.0.0.0/8", "in:tcp:1-15000@::/0",
}

// newTraceWorld makes a world in which a TCP connection that is not captured is refused at
// once, or answered by the peer, and UDP is answered.
func newTraceWorld(t *testing.T) world {
	w := newLinks(t)
	w.answerProbes(t)
	w.sidecar(t, proxy, istioMesh)
	for _, remote := range behindPeer {
		lab.Check(t, w.peer.AddAddresses("lo", remote[ipv4]+"/32", remote[ipv6]+"/128"))
	}
	w.peer.Load(t, `table inet answers {
	chain prerouting {
		type nat hook prerouting priority -99
		iifname != lo meta l4proto tcp redirect to :9
	}
	chain output { # a repeated SYN, which a busy machine sends before the attempt ends, would be counted twice
		type filter hook output priority 0
		tcp flags & (syn | ack) == syn ct mark 1 drop
		ct state new ct mark set 1
	}
}`)
	w.serve(t, w.peer, "tcp", 9, direct)
	for _, host := range []*lab.Host{w.pod, w.peer} {
		for _, port := range []int{53, otherPort} {
			w.serve(t, host, "udp", port, direct)
		}
	}
	return w
}

// otherPort is the one besides 53 that is served over UDP.
const otherPort = 8080
