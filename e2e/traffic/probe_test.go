// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// onlyIPv4 leaves the other family of a probe out.
func onlyIPv4(d dst) dst { return dst{d[ipv4], ""} }

// spelled completes the keys of a scenario's annotations.
func spelled(annotations map[string]string) map[string]string {
	full := map[string]string{}
	for key, value := range annotations {
		if !strings.Contains(key, "/") {
			key = "traffic.sidecar.istio.io/" + key
		}
		full[key] = value
	}
	return full
}

// probe connects and compares which process answered; if it is the proxy, it must
// see the original destination.
func (w world) probe(t *testing.T, p probe, f family) {
	t.Helper()
	if p.to[f] == "" {
		return
	}
	ask := w.ask
	if p.want == dropped && !p.udp {
		ask = func(p probe, f family) (lab.Answer, netip.AddrPort, error) { return w.try(t, p, f) }
	}
	answer, to, err := ask(p, f)
	got := answer.Server
	if got != p.want {
		t.Errorf("%s %+v: answered by %s (%v)", f, p, got, err)
		return
	}
	if want := w.seenAs(p, f, to); got != direct && got != refused && got != dropped && !p.udp {
		if answer.OriginalDst != want {
			t.Errorf("%s %+v to %s: the proxy sees %s as the original destination, want %s", f, p.by, to, answer.OriginalDst, want)
		}
	}
}

// probeAll sends probes over both families.
func (w world) probeAll(t *testing.T, probes ...probe) {
	t.Helper()
	for _, f := range bothFamilies {
		for _, p := range probes {
			w.probe(t, p, f)
		}
	}
}

// try sends a probe over TCP that the rules may drop.
func (w world) try(t *testing.T, p probe, f family) (lab.Answer, netip.AddrPort, error) {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(p.to[f]), uint16(p.port))
	c := lab.Connection{Owner: p.by, To: to}
	if w.servers != nil {
		socket, err := w.from(p).Begin(c)
		lab.Check(t, err)
		defer socket.Close()
		if !unanswered(t, w.from(p), socket, to.Addr()) {
			return w.ask(p, f)
		}
		return lab.Answer{Server: dropped}, to, nil
	}
	got := try(t, w.from(p), c)
	if isTimeout(got.Err) {
		got.Answer.Server = dropped
	}
	return got.Answer, to, got.Err
}

// from returns the host that sends a probe.
func (w world) from(p probe) *lab.Host {
	if p.remote {
		return w.peer
	}
	return w.pod
}

// ask sends a probe. An answer without a server is one that no probe may want: err says
// what happened.
func (w world) ask(p probe, f family) (answer lab.Answer, to netip.AddrPort, err error) {
	network := "tcp"
	if p.udp {
		network = "udp"
	}
	to = netip.AddrPortFrom(netip.MustParseAddr(p.to[f]), uint16(p.port))
	if w.servers == nil {
		answer, err = w.from(p).Ask(p.by, network, p.from[f], to.String())
	} else {
		c := lab.Connection{Owner: p.by, Network: network, To: to}
		if p.from[f] != "" {
			c.From = netip.AddrPortFrom(netip.MustParseAddr(p.from[f]), 0)
		}
		var reply lab.Reply
		if reply, err = w.servers.Ask(w.from(p), c); err == nil {
			answer, err = reply.Answer, reply.Err
		}
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPERM):
		answer = lab.Answer{Server: refused}
	case isTimeout(err):
		answer = lab.Answer{Server: dropped}
	}
	return answer, to, err
}

func isTimeout(err error) bool {
	fault, ok := errors.AsType[net.Error](err)
	return ok && fault.Timeout()
}

// seenAs is the destination that the pod's conntrack knows: a service that
// was translated on the way back is the pod itself by then.
func (w world) seenAs(p probe, f family, to netip.AddrPort) netip.AddrPort {
	if p.to == serviceVIP && p.want == inbound {
		return netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), to.Port())
	}
	return to
}

// translateService makes the peer lead a service address back to the pod, as
// kube-proxy does on a node.
func translateService(t *testing.T, peer *lab.Host) {
	t.Helper()
	peer.Load(t, `table inet service {
	chain prerouting {
		type nat hook prerouting priority -100
		ip daddr `+serviceVIP[ipv4]+` dnat ip to `+podIP[ipv4]+`
		ip6 daddr `+serviceVIP[ipv6]+` dnat ip6 to `+podIP[ipv6]+`
	}
	chain postrouting {
		type nat hook postrouting priority 100
		ct status dnat masquerade
	}
}`)
	lab.Check(t, peer.Do(forward))
}

// list is everything that nft knows of a host's namespace, without counters.
func list(t *testing.T, host *lab.Host, what ...string) string {
	t.Helper()
	var out []byte
	err := host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", listing(what)...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// forward makes the calling thread's namespace a router.
func forward() error {
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

func listing(what []string) []string {
	if what[0] == "-a" {
		return append([]string{"-s", "-a", "list"}, what[1:]...)
	}
	return append([]string{"-s", "list"}, what...)
}
