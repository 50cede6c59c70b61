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

// check is one connection from client to server, with the proxies that it must pass.
type check struct {
	family, name string
	to           netip.AddrPort
	backend      netip.AddrPort // address of the server's pod, which differs from to for a Service
	outbound     bool           // passes the client's proxy
	inbound      bool           // passes the server's proxy
	skip         string         // why the check is not tried
}

// newChecks returns the checks for the addresses of the server and its Service. It marks a check as
// skipped if the configuration exempts the check's connection from capture in all pods, or if the
// connection's destination has no address of the family.
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

// verify compares the path of a connection with the path that the check requires, and returns the
// finding. The finding's subject is the pod whose capture has a problem, or empty.
func (c check) verify(o report.TestObservation, mode Mode) report.Finding {
	wrong := func(pod, format string, args ...any) report.Finding {
		return report.Finding{Code: report.TestMisrouted, Severity: report.Problem, Subject: pod, Reason: fmt.Sprintf(format, args...)}
	}
	unanswered := func(reason string) report.Finding {
		return report.Finding{
			Code: report.TestUnanswered, Severity: report.Problem, Reason: reason + ": " + o.Fault,
			Next: report.TestUnanswered.Advice() + "; if there is none, read the report",
		}
	}
	lines := map[string]report.TestLine{}
	for _, line := range o.Lines {
		lines[line.By] = line
	}
	out, passedOut := lines[report.TestProxy(report.TestClient, "outbound")]
	in, passedIn := lines[report.TestProxy(report.TestServer, "inbound")]
	app, answered := lines[report.TestApplication]
	met := "it met " + path(o.Lines)
	switch {
	case c.skip != "":
		return skipped(c.skip, "")
	case c.outbound && !passedOut && len(o.Lines) > 0:
		return wrong(report.TestClient, "the connection bypassed the client's proxy: %s", met)
	case !c.outbound && passedOut:
		return wrong(report.TestClient, "the connection to an excluded port was captured at the client: %s", met)
	case passedOut && out.Original != c.to && out.Original != c.backend: // a data plane may choose the backend at the client's socket
		return wrong(report.TestClient, "the client's proxy saw the original destination %s, not %s", out.Original, c.to)
	case !answered && len(lines) == 0:
		return unanswered("neither a proxy nor the application answered")
	case c.inbound && !passedIn && answered:
		return wrong(report.TestServer, "the connection bypassed the server's proxy: %s", met)
	case !c.inbound && passedIn:
		return wrong(report.TestServer, "the connection to an excluded port was captured at the server: %s", met)
	case passedIn && in.Original != c.backend:
		return wrong(report.TestServer, "the server's proxy saw the original destination %s, not %s", in.Original, c.backend)
	case !answered:
		return unanswered("the application did not answer: " + met)
	case mode == TProxy && passedIn && app.Client != in.Client:
		return wrong(report.TestServer, "the application saw a connection from %s, not from the client's address %s", app.Client, in.Client)
	}
	return report.Finding{Severity: report.OK}
}

func skipped(reason, next string) report.Finding {
	return report.Finding{Code: report.TestSkipped, Severity: report.NotKnown, Reason: reason, Next: next}
}

// path describes the programs that a connection passed, in their order.
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
