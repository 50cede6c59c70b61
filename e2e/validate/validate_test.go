// SPDX-License-Identifier: Apache-2.0

// Package validate runs the agent's validation as a pod does: as a user without
// capabilities, in a file system with only the agent.
package validate

import (
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestCaptured expects success with each kind of rules, in both directions.
func TestCaptured(t *testing.T) {
	for _, test := range []struct {
		name        string
		addresses   []string
		annotations map[string]string
		env         map[string]string
		says        []string
	}{
		{"IPv4", []string{ipv4}, nil, nil, []string{"IPv4: captured"}},
		{"IPv6", []string{ipv6}, nil, nil, []string{"IPv6: captured"}},
		{"both", []string{ipv4, ipv6}, nil, dualStack, []string{"IPv4: captured", "IPv6: captured"}},
		{"IPv6 not captured by configuration", []string{ipv4, ipv6}, nil, nil, []string{"IPv4: captured"}},
		{"TPROXY", []string{ipv4, ipv6}, transparent, dualStack, []string{"IPv4: captured", "IPv6: captured"}},
		{"DNS", []string{ipv4, ipv6}, nil, with(dualStack, "ISTIO_META_DNS_CAPTURE"), []string{"IPv4: captured", "IPv6: captured"}},
		{"TPROXY and DNS", []string{ipv4}, transparent, with(nil, "ISTIO_META_DNS_CAPTURE", "INVALID_DROP"), []string{"IPv4: captured"}},
		{"listed ports", []string{ipv4}, map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "8080"}, nil, []string{"IPv4: captured"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				p := newPod(t, test.addresses...)
				p.apply(t, p.rules(t, test.annotations, test.env), backend)
				for direction, user := range users {
					p.start(t, user, direction, "--budget=10s").expect(t, 0, test.says...)
				}
			})
		})
	}
}

// TestNotCaptured expects the exit status of each direction that is not captured.
func TestNotCaptured(t *testing.T) {
	noOutbound := map[string]string{"traffic.sidecar.istio.io/includeOutboundIPRanges": ""}
	for _, test := range []struct {
		name        string
		rules       func(*testing.T, pod) capture.Ruleset
		out, in     int
		outSays     string
		inboundSays string
	}{
		{"no rules", nil, codeOutbound, codeInbound, "IPv4: dial", "connection refused"},
		{"inbound alone", func(t *testing.T, p pod) capture.Ruleset { return p.rules(t, noOutbound, dualStack) }, codeOutbound, 0, "IPv4: dial", "captured"},
		{"outbound alone", withoutInbound, 0, codeInbound, "captured", "connection refused"},
		{"another port", otherPorts, codeOutbound, codeInbound, "connection refused", "connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				p := newPod(t, ipv4, ipv6)
				if test.rules != nil {
					p.apply(t, test.rules(t, p), backend)
				}
				p.start(t, app, "outbound", budget(test.out), "--family=both").expect(t, test.out, test.outSays)
				p.start(t, proxy, "inbound", budget(test.in), "--family=both").expect(t, test.in, test.inboundSays)
			})
		})
	}
}

// budget is long where success is expected, for a busy machine, and else enough for one attempt.
func budget(code int) string {
	if code == 0 {
		return "--budget=60s"
	}
	return "--budget=0"
}

// TestOneFamily expects an error for IPv6 alone, if the flags select IPv6.
func TestOneFamily(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4, ipv6)
	p.apply(t, p.rules(t, nil, nil), config.NFTables)
	for direction, user := range users {
		code := map[string]int{"outbound": codeOutbound, "inbound": codeInbound}[direction]
		p.start(t, user, direction, "--budget=1s", "--family=both").expect(t, code, "IPv4: captured", "no proof that ")
		p.start(t, user, direction, "--budget=0", "--family=ipv6").expect(t, code, "IPv6: ")
		p.start(t, user, direction, budget(0), "--family=ipv4").expect(t, 0)
	}
}

// TestRulesAppliedLater applies rules while the validation retries. They capture IPv6,
// too, which it did not expect at its start.
func TestRulesAppliedLater(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for direction, user := range users {
			p := newPod(t, ipv4, ipv6)
			running := p.start(t, user, direction, "--budget=60s")
			running.waitFor(t, "not captured yet")
			p.apply(t, p.rules(t, nil, dualStack), backend)
			running.expect(t, 0, "IPv4: captured", "IPv6: captured")
		}
	})
}

// TestWrongUser expects an error for each direction with the other direction's user.
func TestWrongUser(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4)
	p.apply(t, p.rules(t, nil, nil), config.NFTables)
	p.start(t, proxy, "outbound", "--budget=0").expect(t, codeOutbound, "running with uid 1337 and gid 1337")
	p.start(t, app, "inbound", "--budget=0").expect(t, codeInbound, "running with uid 1000 and gid 1000")
}

// TestPortInUse expects a status of its own, without retries.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for _, address := range []string{"0.0.0.0", "[::]", "127.0.0.1"} {
		p := newPod(t, ipv4)
		for _, port := range []string{"15001", "15006"} {
			server, err := p.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", address+":"+port, "proxy")
			lab.Check(t, err)
			t.Cleanup(func() { _ = server.Close() })
		}
		for direction, user := range users {
			p.start(t, user, direction).expect(t, codePortInUse, "run validate before the proxy starts")
		}
	}
}

// TestNotTried expects a status of its own if no connection could be tried.
func TestNotTried(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4)
	p.start(t, app, "inbound", "--family=ipv6").expect(t, codeNotTried, "the pod has no IPv6 address")
	p.start(t, app, "outbound", "--destination=2001:db8::1").expect(t, codeNotTried, "no --destination is an IPv4 address")
	p.start(t, app, "outbound", "--budget=0", "--family=ipv6").expect(t, codeNotTried, "unreachable")
	p = pod{Host: lab.StartHost(t)}
	p.start(t, app, "outbound").expect(t, codeNotTried, "no address besides loopback")
}

// TestRanges validates a pod that captures one range by an address in it.
func TestRanges(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4)
	ranges := map[string]string{"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.96.0.0/12"}
	p.apply(t, p.rules(t, ranges, nil), config.NFTables)
	p.start(t, app, "outbound", "--budget=0").expect(t, codeOutbound)
	p.start(t, app, "outbound", budget(0), "--destination=10.96.0.1").expect(t, 0)
}

// TestUsage expects a status that means no result.
func TestUsage(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4)
	p.start(t, app, "sideways").expect(t, 1, "sideways")
	p.start(t, app, "outbound", "--family=7").expect(t, 1, "expected auto, ipv4, ipv6 or both")
}

// TestStaysOnTheNode expects the first router to drop connections that are not
// captured.
func TestStaysOnTheNode(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	p := newPod(t, ipv4, ipv6)
	nft(t, p.node, `table inet seen {
	counter arrived {}
	counter forwarded {}
	chain prerouting {
		type filter hook prerouting priority 0
		tcp dport 15002 counter name arrived
	}
	chain forward {
		type filter hook forward priority 0
		tcp dport 15002 counter name forwarded
	}
}`, "-f", "-")
	p.start(t, app, "outbound", "--budget=0", "--family=both").expect(t, codeOutbound)
	if n := packets(t, p.node, "arrived"); n < 2 {
		t.Errorf("%d packets arrived at the router, want one of each family", n)
	}
	if n := packets(t, p.node, "forwarded"); n != 0 {
		t.Errorf("%d packets were forwarded", n)
	}
}
