// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// oracle compares the rules for an Intent with the mesh's own for the same pod, by packets.
type oracle struct {
	intent  capture.Intent
	backend config.Backend // of ours; empty: nftables
	mesh    config.Mesh
	theirs  func(pod *lab.Host) error // captures by the mesh's own program

	beside      func(pod *lab.Host) error // captures our pod, too; nil for none
	besideFirst bool

	ports  []int           // what packets are sent to, next to oraclePorts
	owners []lab.Owner     // who sends them, next to oracleOwners
	to     []dst           // where to, next to oracleTo
	also   []difference    // next to differences
	met    map[string]bool // differences that packets met, by why
}

var (
	oraclePorts  = []int{53, 80, 15008, 15020, 15021, 15090}
	oracleOwners = []lab.Owner{app, rootUser, proxy, proxyUID, proxyGID}
	oracleTo     = []dst{external, included, excluded, podIP, secondIP, secondPeer, localhost, onlyIPv4(otherLocal), serviceVIP, probeTarget}
)

// difference is one from Istio that is intended.
type difference struct {
	why    string
	holds  func(in capture.Intent, p probe) bool
	allows [][2]string                  // who answers with our rules, and with Istio's
	shown  func(in capture.Intent) bool // packets of such a pod must meet it
}

// differences are all that the packets can meet.
var differences = []difference{
	{
		why:    "what arrives on a rerouted interface counts as outbound; Istio's TPROXY rules capture it as inbound before",
		holds:  func(in capture.Intent, p probe) bool { return rerouted(in, p.arrivesBy()) },
		allows: [][2]string{{direct, inbound}, {outbound, inbound}},
		shown: func(in capture.Intent) bool {
			return rerouted(in, "net1") && in.InboundPorts.All && !in.OutboundRanges.All
		},
	},
	{
		why: "Istio exempts the tunnel port under REDIRECT alone; its TPROXY rules would capture what is already a tunnel",
		holds: func(in capture.Intent, p probe) bool {
			return in.Transparent && p.port == int(in.TunnelPort) && takesInbound(in, p.port)
		},
		allows: [][2]string{{direct, inbound}},
		shown:  func(in capture.Intent) bool { return in.Transparent && takesInbound(in, int(in.TunnelPort)) },
	},
}

func rerouted(in capture.Intent, device string) bool {
	return in.Transparent && slices.Contains(in.RerouteInterfaces, device)
}

// takesInbound reports whether inbound connections to a port are captured, but for the
// tunnel's.
func takesInbound(in capture.Intent, port int) bool {
	if in.InboundPorts.All {
		return !excludes(in.ExcludeInboundPorts, port)
	}
	return slices.Contains(in.InboundPorts.Only, uint16(port))
}

func excludes(ports []capture.PortRange, port int) bool {
	return slices.ContainsFunc(ports, func(r capture.PortRange) bool { return r.Contains(uint16(port)) })
}

// arrivesBy returns the interface by which a packet reaches the pod.
func (p probe) arrivesBy() string {
	switch {
	case p.remote && p.to == secondIP:
		return "net1"
	case p.remote || p.to == serviceVIP:
		return "eth0"
	}
	return "lo"
}

// known are all differences that packets of this pod may meet.
func (o *oracle) known() []difference { return append(slices.Clone(differences), o.also...) }

// intended returns the intended difference between two answers to a probe, if there is
// one.
func (o *oracle) intended(p probe, ours, istios string) (why string, found bool) {
	answers := [2]string{answerer(ours), answerer(istios)}
	for _, d := range o.known() {
		if d.holds(o.intent, p) && slices.Contains(d.allows, answers) {
			return d.why, true
		}
	}
	return "", false
}

// answerer returns who answered, without the original destination.
func answerer(answer string) string {
	name, _, _ := strings.Cut(answer, ", for ")
	return name
}

// captureByIstio captures a pod by Istio's own program. That program at times loses a
// file descriptor of its own: it fails to add an address, or to leave the namespace. Then
// another pod is tried; the last error is returned.
func captureByIstio(newWorld func() world, istio func(pod *lab.Host) error) (w world, err error) {
	for range 3 {
		w = newWorld()
		if err = istio(w.pod); err == nil {
			break
		}
	}
	return w, err
}

// compare captures two pods alike but for the program, and reports what is not decided
// alike.
func (o *oracle) compare(t *testing.T) {
	t.Helper()
	probes := o.probes()
	o.met = map[string]bool{}
	o.mesh.ProxyUID, o.mesh.ProxyGID = o.intent.ProxyUID, o.intent.ProxyGID
	servers := func() world { return newProbeWorld(t, ports(probes), o.mesh) }
	ours := servers()
	istios, err := captureByIstio(servers, o.theirs)
	lab.Check(t, err)
	if o.beside != nil && o.besideFirst {
		lab.Check(t, o.beside(ours.pod))
	}
	lab.Check(t, open(t, ours.pod, cmp.Or(o.backend, config.NFTables)).Apply(capture.Rules(o.intent)))
	if o.beside != nil && !o.besideFirst {
		lab.Check(t, o.beside(ours.pod))
	}
	lab.Check(t, istios.pod.WaitForIPv6())
	var answers [2][]string
	var both sync.WaitGroup
	for i, w := range []world{ours, istios} {
		both.Go(func() { answers[i] = o.meetAll(w, probes) })
	}
	both.Wait()
	for i, p := range probes {
		for _, f := range bothFamilies {
			n := 2*i + int(f)
			o.judge(t, p, f, answers[0][n], answers[1][n], func() (string, string) { return ours.meet(p, f), istios.meet(p, f) })
		}
	}
	for _, d := range o.known() {
		if !o.met[d.why] && d.shown(o.intent) {
			t.Errorf("no packet meets an intended difference: %s", d.why)
		}
	}
	if o.intent.DropInvalid {
		got, want := sendStraySYNACK(t, ours.peer, external, podIP), sendStraySYNACK(t, istios.peer, external, podIP)
		if got != want {
			t.Errorf("a stray segment: answered with a reset: %v, with Istio's rules: %v", got, want)
		}
	}
}

// meetAll returns what each probe meets by each family.
func (o *oracle) meetAll(w world, probes []probe) (answers []string) {
	nowhere := !capture.Rules(o.intent).NeedsProxySource() // nothing has ::6 then
	for _, p := range probes {
		for _, f := range bothFamilies {
			answer := ""
			if p.to[f] != "" && !(nowhere && f == ipv6 && slices.Contains([]dst{p.to, p.from}, probeTarget)) {
				answer = w.meet(p, f)
			}
			answers = append(answers, answer)
		}
	}
	return answers
}

func (o *oracle) judge(t *testing.T, p probe, f family, got, want string, again func() (string, string)) {
	t.Helper()
	for range 2 { // a packet can be late on a busy machine, and meet waits for it again
		if got != want {
			got, want = again()
		}
	}
	if got == want {
		return
	}
	if why, intended := o.intended(p, got, want); intended {
		o.met[why] = true
	} else {
		t.Errorf("%s %+v: answered by %s, with the mesh's own rules by %s", f, p, got, want)
	}
}

// probes returns each kind of packet that can make a difference.
func (o *oracle) probes() (all []probe) {
	destinations := append(slices.Clone(oraclePorts), o.ports...)
	slices.Sort(destinations)
	for _, port := range slices.Compact(destinations) {
		for _, to := range []dst{podIP, secondIP} {
			all = append(all, in(to, port, ""), udp(in(to, port, "")))
		}
		for _, owner := range append(slices.Clone(oracleOwners), o.owners...) {
			for _, to := range append(slices.Clone(oracleTo), o.to...) {
				all = append(all, out(owner, to, port, ""))
				if port == 53 || port == 15020 {
					all = append(all, udp(out(owner, to, port, "")))
				}
			}
			all = append(all, probe{by: owner, from: proxySource, to: podIP, port: port})
		}
	}
	return all
}
