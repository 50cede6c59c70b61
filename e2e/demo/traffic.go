// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

var (
	application = lab.Owner{UID: 1000, GID: 1000}
	proxy       = lab.Owner{UID: 1337, GID: 1337}
)

// The names of the servers.
const (
	outboundProxy = "the proxy (outbound)"
	inboundProxy  = "the proxy (inbound)"
	theApp        = "the application"
	theOutside    = "the outside"
)

const traffic = "traffic.sidecar.istio.io/"

const appPort, webPort = 8080, 80

// exclusions are what a manifest's annotations exclude from capture, one of each kind.
type exclusions struct {
	inboundPort, outboundPort int
	addresses                 [2]string // IPv4, IPv6
}

// exclusionsOf reads a manifest. Where it excludes nothing of a kind, the result
// is a port that Istio excludes by default, or some address.
func exclusionsOf(pod *corev1.Pod) exclusions {
	x := exclusions{
		inboundPort:  lastPort(pod, "excludeInboundPorts", 15021),
		outboundPort: lastPort(pod, "excludeOutboundPorts", 15020),
		addresses:    [2]string{"198.51.100.7", "2001:db8:51::7"},
	}
	for text := range strings.SplitSeq(pod.Annotations[traffic+"excludeOutboundIPRanges"], ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		address := prefix.Addr()
		if !prefix.IsSingleIP() {
			address = prefix.Masked().Addr().Next()
		}
		if address.Is4() {
			x.addresses[0] = address.String()
		} else {
			x.addresses[1] = address.String()
		}
	}
	return x
}

func lastPort(pod *corev1.Pod, key string, otherwise int) int {
	list := strings.Split(pod.Annotations[traffic+key], ",")
	if port, err := strconv.Atoi(strings.TrimSpace(list[len(list)-1])); err == nil {
		return port
	}
	return otherwise
}

// serve starts servers that answer with their names: the proxy's two ports, the
// application, and the servers outside.
func serve(n *node, p *pod) error {
	ports := map[*lab.Host]map[int]string{
		p.Host:    {appPort: theApp, n.excluded.inboundPort: theApp},
		n.outside: {webPort: theOutside, n.excluded.outboundPort: theOutside},
	}
	if n.serving {
		delete(ports, n.outside)
	} else if _, err := n.outside.Serve("udp", fmt.Sprintf(":%d", webPort), theOutside); err != nil {
		return err
	}
	for host, names := range ports {
		for port, name := range names {
			if _, err := host.Serve("tcp", fmt.Sprintf(":%d", port), name); err != nil {
				return err
			}
		}
	}
	n.serving = true
	for port, name := range map[int]string{15001: outboundProxy, 15006: inboundProxy} {
		if _, err := p.ServeProxy(proxy, "tcp", fmt.Sprintf(":%d", port), name); err != nil {
			return err
		}
	}
	return nil
}

// connection is one row of the demo's table.
type connection struct {
	what  string
	host  *lab.Host
	owner lab.Owner
	to    [2]string // IPv4, IPv6
	port  int
	over  string // tcp, udp or icmp
}

func showTraffic(n *node, p *pod) {
	outside, excluded := [2]string{outsideIPv4, outsideIPv6}, n.excluded.addresses
	own, localhost := p.addresses(), [2]string{"127.0.0.1", "::1"}
	rows := []connection{
		{"application -> outside", p.Host, application, outside, webPort, "tcp"},
		{"application -> outside, UDP", p.Host, application, outside, webPort, "udp"},
		{"application -> outside, ping", p.Host, application, outside, 0, "icmp"},
		{"application -> outside, excluded port", p.Host, application, outside, n.excluded.outboundPort, "tcp"},
		{"application -> outside, excluded range", p.Host, application, excluded, webPort, "tcp"},
		{"application -> localhost", p.Host, application, localhost, appPort, "tcp"},
		{"application -> its pod's own address", p.Host, application, own, appPort, "tcp"},
		{"proxy -> outside", p.Host, proxy, outside, webPort, "tcp"},
		{"proxy -> localhost", p.Host, proxy, localhost, appPort, "tcp"},
		{"proxy -> its pod's own address", p.Host, proxy, own, appPort, "tcp"},
		{"outside -> pod", n.outside, application, own, appPort, "tcp"},
		{"outside -> pod, excluded port", n.outside, application, own, n.excluded.inboundPort, "tcp"},
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONNECTION\tPORT\tIPv4 ANSWERED BY\tIPv6 ANSWERED BY")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", row.what, row.port, row.answeredBy(0), row.answeredBy(1))
	}
	_ = table.Flush() // to stdout
}

// answeredBy connects and returns the name of the server that answered.
func (c connection) answeredBy(family int) string {
	if c.to[family] == "" {
		return "-"
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(c.to[family]), uint16(c.port))
	answer, err := lab.Answer{Server: theOutside}, error(nil)
	if c.over == "icmp" {
		err = c.host.Ping(c.owner, to.Addr(), time.Second)
	} else {
		answer, err = c.host.Ask(c.owner, c.over, "", to.String())
	}
	if err != nil {
		return noAnswer(err)
	}
	return answer.Server
}

func noAnswer(err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPERM) {
		return "none (refused)"
	}
	return "none (no answer)"
}

// addresses returns the pod's IPv4 and IPv6 address, "" for none.
func (p *pod) addresses() (addresses [2]string) {
	for _, ip := range p.result.IPs {
		if ip.Address.IP.To4() != nil {
			addresses[0] = ip.Address.IP.String()
		} else {
			addresses[1] = ip.Address.IP.String()
		}
	}
	return addresses
}
