// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

func (w *world) start(host *lab.Host, owner lab.Owner) (*lab.Process, error) {
	process, err := host.Start(owner)
	if err == nil {
		w.closers = append(w.closers, func() error { process.Close(); return nil })
	}
	return process, err
}

// link makes the hosts, with time-outs and ports that let many sequences follow each other.
func (w *world) link() (outside [2]*lab.Host, err error) {
	var hosts [3]*lab.Host
	for i := range hosts {
		if hosts[i], err = lab.NewHost(); err != nil {
			return outside, err
		}
		w.closers = append(w.closers, hosts[i].Close)
		if err := hosts[i].AddAddresses("lo"); err != nil {
			return outside, err
		}
	}
	w.pod, outside = hosts[0], [2]*lab.Host{hosts[1], hosts[2]}
	for i, name := range []string{"eth0", "net1"} {
		addresses := func(of [2]netip.Addr) []string { return []string{of[0].String() + "/24", of[1].String() + "/64"} }
		if err := lab.Link(
			lab.Interface{Host: w.pod, Name: name, Addresses: addresses(podAddresses[i])},
			lab.Interface{Host: outside[i], Name: "eth0", Addresses: addresses(peerAddresses[i])}); err != nil {
			return outside, err
		}
		for f := range 2 {
			// The peers can answer both addresses of the pod; over net1, each address can be tried.
			if err := errors.Join(outside[i].AddDefaultRoute(podAddresses[i][f].String()), w.defaultRoute(name, f, peerAddresses[i][f], 100*(i+1))); err != nil {
				return outside, err
			}
		}
	}
	settings := map[string]string{"ipv4/ip_local_port_range": "60000 65000", "ipv4/ping_group_range": "0 65535"}
	for _, state := range []string{"udp_timeout", "udp_timeout_stream", "icmp_timeout", "icmpv6_timeout"} {
		settings["netfilter/nf_conntrack_"+state] = "10"
	}
	for _, state := range []string{"syn_sent", "syn_recv", "established", "fin_wait", "close_wait", "last_ack", "time_wait", "close", "unacknowledged", "max_retrans"} {
		settings["netfilter/nf_conntrack_tcp_timeout_"+state] = "10"
	}
	if w.cookies {
		settings["ipv4/tcp_syncookies"] = "2"
	}
	for _, host := range hosts {
		err := host.Do(func() error {
			if host != w.pod {
				settings["ipv4/conf/all/route_localnet"] = "1" // a host outside may send what it likes
			}
			for key, value := range settings {
				if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, host.WaitForIPv6()); err != nil {
			return outside, err
		}
	}
	return outside, nil
}

func (w *world) defaultRoute(name string, f int, gateway netip.Addr, metric int) error {
	family := []string{"-4", "-6"}[f]
	return execute(w.pod, exec.Command("ip", family, "route", "add", "default", "via", gateway.String(), "dev", name, "metric", fmt.Sprint(metric)))
}

func execute(host *lab.Host, command *exec.Cmd) error {
	return host.Do(func() error {
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("executing %v: %w: %s", command.Args, err, out)
		}
		return nil
	})
}

// dscpApp is the class of each packet that is not of the proxy's group.
const dscpApp = 10

// tap makes the pod's packets show outside who sent them.
func (w *world) tap(ctx context.Context, hosts [2]*lab.Host) (err error) {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(fmt.Sprintf(`table inet senders {
	chain output {
		type filter hook output priority -500
		ip dscp set %[1]d
		ip6 dscp set %[1]d
		meta skgid 1337 ip dscp set 0
		meta skgid 1337 ip6 dscp set 0
	}
}`, dscpApp))
	if err := execute(w.pod, command); err != nil {
		return err
	}
	for i, host := range hosts {
		// What comes for localhost is answered by sequences alone.
		silence := exec.CommandContext(ctx, "nft", "add table inet silence; add chain inet silence in { type filter hook prerouting priority -500; }; add rule inet silence in iif eth0 ip daddr 127.0.0.0/8 drop")
		if err := execute(host, silence); err != nil {
			return err
		}
		if w.taps[i], err = host.Tap("eth0"); err != nil {
			return err
		}
		w.closers = append(w.closers, w.taps[i].Close)
	}
	return nil
}
