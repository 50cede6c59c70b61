// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestJudge accepts what captured connections meet, and nothing else.
func TestJudge(t *testing.T) {
	t.Parallel()
	server := map[string]netip.Addr{"IPv4": netip.MustParseAddr("10.244.0.2")}
	service := map[string]netip.Addr{"IPv4": netip.MustParseAddr("10.96.0.7")}
	checks := newChecks(server, service, ports{8080, 8081, 8082}, config.DefaultSettings())
	dual := map[string]netip.Addr{"IPv4": server["IPv4"], "IPv6": netip.MustParseAddr("fd00::2")}
	if c := newChecks(dual, service, ports{}, config.DefaultSettings()); c[4].skip != "Services have no IPv6 address" || c[5].skip != "" {
		t.Errorf("a Service of one family: %+v", c)
	}
	toService, toPod, directOut, directIn := checks[0], checks[1], checks[2], checks[3]
	without := func(by string) func(*report.TestObservation) {
		return func(o *report.TestObservation) {
			o.Lines = slices.DeleteFunc(o.Lines, func(l report.TestLine) bool { return l.By == by })
		}
	}
	original := func(by, to string) func(*report.TestObservation) {
		return func(o *report.TestObservation) {
			i := slices.IndexFunc(o.Lines, func(l report.TestLine) bool { return l.By == by })
			o.Lines[i].Original = netip.MustParseAddrPort(to)
		}
	}
	captured := func(by, to string) func(*report.TestObservation) {
		return func(o *report.TestObservation) {
			o.Lines = append([]report.TestLine{{By: by, Original: netip.MustParseAddrPort(to)}}, o.Lines...)
		}
	}
	for _, tt := range []struct {
		name   string
		check  check
		mode   Mode
		change func(*report.TestObservation)
		cause  string // "": passed
		pod    string
	}{
		{"Service", toService, Redirect, nil, "", ""},
		{"pod", toPod, Redirect, nil, "", ""},
		{"transparent", toPod, TProxy, nil, "", ""},
		{"excluded outbound", directOut, Redirect, nil, "", ""},
		{"excluded inbound", directIn, Redirect, nil, "", ""},
		{"load balancer in the socket", toService, Redirect, original("client/outbound", "10.244.0.2:8080"), "", ""},
		{"no outbound", toPod, Redirect, without("client/outbound"), "bypassed the client's proxy", "client"},
		{"no inbound", toPod, Redirect, without("server/inbound"), "bypassed the server's proxy", "server"},
		{"no inbound, excluded outbound", directOut, Redirect, without("server/inbound"), "bypassed the server's proxy", "server"},
		{"captured all the same, outbound", directOut, Redirect, captured("client/outbound", "10.244.0.2:8081"), "captured at the client", "client"},
		{"captured all the same, inbound", directIn, Redirect, captured("server/inbound", "10.244.0.2:8082"), "captured at the server", "server"},
		{"wrong original destination, outbound", toService, Redirect, original("client/outbound", "10.244.0.2:80"), "saw the original destination 10.244.0.2:80", "client"},
		{"wrong original destination, inbound", toService, Redirect, original("server/inbound", "10.96.0.7:80"), "saw the original destination 10.96.0.7:80", "server"},
		{"transparent, from the proxy's address", toPod, TProxy, func(o *report.TestObservation) { o.Lines[2].Client = netip.MustParseAddr("127.0.0.6") }, "from 127.0.0.6", "server"},
		{"no answer", toPod, Redirect, func(o *report.TestObservation) { o.Lines, o.Fault = nil, "timeout" }, "neither a proxy nor the application answered: timeout", ""},
		{"no application", toPod, Redirect, func(o *report.TestObservation) {
			o.Lines, o.Fault = o.Lines[:2], "ended"
			o.Lines[1].Fault = "refused"
		}, "it met client/outbound, then server/inbound (refused): ended", ""},
		{"nothing observed", toPod, Redirect, func(o *report.TestObservation) { *o = report.TestObservation{} }, "neither", ""},
	} {
		o := asCaptured(tt.check.to, tt.mode)
		if tt.change != nil {
			tt.change(&o)
		}
		found := tt.check.verify(o, tt.mode)
		if passed := found.Severity == report.OK; passed != (tt.cause == "") || !strings.Contains(found.Reason, tt.cause) || found.Subject != tt.pod || passed != (found.Code == "") {
			t.Errorf("%s: %+v", tt.name, found)
		}
	}
	if last := checks[4]; last.skip != "the pods have no IPv6 address" || len(checks) != 5 {
		t.Errorf("%+v", checks)
	}
}

// TestNamespaces have no pods injected, and as much Pod Security as the mode allows.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for mode, security := range map[Mode]string{Redirect: "restricted", TProxy: "privileged"} {
		labels := newNamespace("n", mode, time.Now()).Labels
		if labels["istio-injection"] != "disabled" || labels["pod-security.kubernetes.io/enforce"] != security {
			t.Errorf("%s: %v", mode, labels)
		}
	}
}
