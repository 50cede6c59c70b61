// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
)

// check is one connection from client to server, and the proxies that it must pass.
type check struct {
	family, name string
	to           netip.AddrPort
	backend      netip.AddrPort // of the server's pod: to, unless that is a Service's
	outbound     bool           // passes the client's proxy
	inbound      bool           // passes the server's proxy
	skip         string         // why it is not tried
}

// newChecks returns the checks for the server's addresses and those of its Service. It skips
// those that the configuration exempts from capture for all pods.
func newChecks(server, service map[string]netip.Addr, p ports, settings config.Settings) (checks []check) {
	add := func(c check) {
		excludes := func(p netip.Prefix) bool { return p.Contains(c.to.Addr()) }
		switch {
		case c.skip != "":
		case c.family == "IPv6" && settings.IPv6 == config.IPv6Never:
			c.skip = "netconf.ipv6 is never"
		case slices.ContainsFunc(settings.Mesh.ExcludeOutboundIPRanges, excludes):
			c.skip = "netconf.mesh.excludeOutboundIPRanges has " + c.to.Addr().String()
		}
		checks = append(checks, c)
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		address, ok := server[family]
		if !ok {
			add(check{family: family, name: "all", skip: "the pods have no " + family + " address"})
			continue
		}
		direct := func(name string, port uint16, outbound, inbound bool) check {
			to := netip.AddrPortFrom(address, port)
			return check{family: family, name: name, to: to, backend: to, outbound: outbound, inbound: inbound}
		}
		toService := direct("to a Service", p.captured, true, true)
		if vip, ok := service[family]; ok {
			toService.to = netip.AddrPortFrom(vip, servicePort)
		} else {
			toService.skip = "Services have no " + family + " address"
		}
		add(toService)
		add(direct("to a pod", p.captured, true, true))
		add(direct("excluded outbound port", p.directOutbound, false, true))
		add(direct("excluded inbound port", p.directInbound, true, false))
	}
	return checks
}

// fault is what is wrong with a connection.
type fault struct {
	cause string
	pod   string // whose capture failed; empty: neither
}

// verify compares what a connection met with what it must meet.
func (c check) verify(o report.TestObservation, mode Mode) (wrong fault, ok bool) {
	lines := map[string]report.TestLine{}
	for _, line := range o.Lines {
		lines[line.By] = line
	}
	out, passedOut := lines[report.TestProxy(report.TestClient, "outbound")]
	in, passedIn := lines[report.TestProxy(report.TestServer, "inbound")]
	app, answered := lines[report.TestApplication]
	met := "it met " + path(o.Lines)
	switch {
	case c.outbound && !passedOut && len(o.Lines) > 0:
		return fault{"the connection bypassed the client's proxy: " + met, report.TestClient}, false
	case !c.outbound && passedOut:
		return fault{"the connection to an excluded port was captured at the client: " + met, report.TestClient}, false
	case passedOut && out.Original != c.to && out.Original != c.backend: // a load balancer in the socket has chosen the backend before
		return fault{fmt.Sprintf("the client's proxy saw the original destination %s, not %s", out.Original, c.to), report.TestClient}, false
	case !answered && len(lines) == 0:
		return fault{"neither a proxy nor the application answered: " + o.Fault, ""}, false
	case c.inbound && !passedIn && answered:
		return fault{"the connection bypassed the server's proxy: " + met, report.TestServer}, false
	case !c.inbound && passedIn:
		return fault{"the connection to an excluded port was captured at the server: " + met, report.TestServer}, false
	case passedIn && in.Original != c.backend:
		return fault{fmt.Sprintf("the server's proxy saw the original destination %s, not %s", in.Original, c.backend), report.TestServer}, false
	case !answered:
		return fault{fmt.Sprintf("the application did not answer: %s: %s", met, o.Fault), ""}, false
	case mode == TProxy && passedIn && app.Client != in.Client:
		return fault{fmt.Sprintf("the application saw a connection from %s, not from the client's address %s",
			app.Client, in.Client), report.TestServer}, false
	}
	return fault{}, true
}

// path returns what a connection met, in words.
func path(lines []report.TestLine) string {
	var names []string
	for _, line := range lines {
		name := line.By
		if line.Fault != "" {
			name += " (" + line.Fault + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", then ")
}
