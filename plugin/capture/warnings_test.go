// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestEarlyContainers expects warnings of init containers that start before the proxy
// and whose traffic is captured.
func TestEarlyContainers(t *testing.T) {
	t.Parallel()
	first := func(names ...string) func(*Pod) {
		return func(p *Pod) {
			for _, name := range names {
				withInit(name)(p)
			}
		}
	}
	fetchAs := func(uid, gid int64) func(*Pod) { return withInit("fetch", runsAs(uid, gid)) }
	for _, test := range []struct {
		name    string
		changes []func(*Pod)
		want    []string
	}{
		{"none", nil, nil},
		{"two", []func(*Pod){first("fetch", "migrate")}, []string{"fetch", "migrate"}},
		{"Istio's own", []func(*Pod){first(containerInit, containerValidation)}, nil},
		{"before and after a native sidecar", []func(*Pod){first("fetch"), native, first("migrate")}, []string{"fetch"}},
		{"with the proxy's uid", []func(*Pod){fetchAs(1337, 5)}, nil},
		{"with the proxy's gid", []func(*Pod){fetchAs(5, 1337)}, nil},
		{"with its own", []func(*Pod){fetchAs(5, 5)}, []string{"fetch"}},
		{"nothing captured", []func(*Pod){first("fetch"), annotated(annotationIncludeOutboundRanges, "")}, nil},
		{"only a port captured", []func(*Pod){
			first("fetch"), annotated(annotationIncludeOutboundRanges, ""), annotated(annotationIncludeOutboundPorts, "80"),
		}, []string{"fetch"}},
	} {
		_, warnings, err := decide(meshedPod(test.changes...), config.DefaultSettings(), only4)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var got []string
		for _, w := range warnings {
			if rest, ok := strings.CutPrefix(w, "init container "); ok {
				name, _, _ := strings.Cut(rest, " starts before")
				got = append(got, name)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: warned of %q, want %q", test.name, got, test.want)
		}
	}
}

// TestEarlyContainersAdvice names what is wrong and what mends it: the proxy's kind or its
// place, never what the pod has already or what would be refused.
func TestEarlyContainersAdvice(t *testing.T) {
	t.Parallel()
	const (
		change    = "make istio-proxy a native sidecar before it"
		move      = "move istio-proxy before it"
		itself    = ", or run it with the proxy's uid 1337"
		fails     = "init container first starts before istio-proxy, so its captured connections fail: "
		waits     = "init container first starts before istio-proxy, so its captured connections fail until the proxy listens: "
		forbidden = config.SharedUIDRefuse
	)
	ending := func(p *Pod) { native(p); p.container(containerProxy).KeepsRunning = false }
	for name, test := range map[string]struct {
		changes []func(*Pod)
		policy  config.SharedUIDPolicy
		want    []string
	}{
		"a classic sidecar":                      {changes: []func(*Pod){withInit("first")}, want: []string{fails + change + itself}},
		"a classic sidecar, shared uid refused":  {changes: []func(*Pod){withInit("first")}, policy: forbidden, want: []string{fails + change}},
		"a native sidecar first":                 {changes: []func(*Pod){native, withInit("first")}},
		"a native sidecar after it":              {changes: []func(*Pod){withInit("first"), native}, want: []string{fails + move + itself}},
		"a native sidecar, shared uid refused":   {changes: []func(*Pod){withInit("first"), native}, policy: forbidden, want: []string{fails + move}},
		"another sidecar before a native one":    {changes: []func(*Pod){withInit("first", keepsRunning), native}, want: []string{waits + move}},
		"another sidecar before a classic one":   {changes: []func(*Pod){withInit("first", keepsRunning)}, want: []string{waits + change}},
		"another sidecar after it":               {changes: []func(*Pod){native, withInit("first", keepsRunning)}},
		"a proxy that is an init container only": {changes: []func(*Pod){withInit("first"), ending}, want: []string{fails + change + itself}},
	} {
		settings := config.DefaultSettings()
		settings.SharedProxyUID = cmp.Or(test.policy, settings.SharedProxyUID)
		_, warnings, err := decide(meshedPod(test.changes...), settings, only4)
		if err != nil || !slices.Equal(warnings, test.want) {
			t.Errorf("%s: got %q, %v\nwant %q", name, warnings, err, test.want)
		}
	}
}

// TestMisspelt warns of keys and variables that look like one that decides, and names that
// one. The other keys of a mesh are its own affair.
func TestMisspelt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod  Pod
		want []string // the ends of the warnings
	}{
		"Linkerd": {linkerdPod(annotated(annotationLinkerd+"skip-oubound-ports", "1")), []string{
			"annotation config.linkerd.io/skip-oubound-ports is not known and has no effect: write config.linkerd.io/skip-outbound-ports",
		}},
		"Linkerd, singular":        {linkerdPod(annotated(annotationLinkerd+"skip-subnet", "1")), []string{": write config.linkerd.io/skip-subnets"}},
		"Linkerd, letters swapped": {linkerdPod(annotated(annotationLinkerd+"skip-inbuond-ports", "1")), []string{": write config.linkerd.io/skip-inbound-ports"}},
		"Linkerd, in capitals":     {linkerdPod(annotated(annotationLinkerd+"skipInboundPorts", "1")), []string{": write config.linkerd.io/skip-inbound-ports"}},
		"Linkerd's other keys": {linkerdPod(
			annotated(annotationLinkerd+"proxy-log-level", "1"), annotated(annotationLinkerd+"opaque-ports", "1"), annotated(annotationLinkerd+"pod-inbound-ports", "1"), annotated(annotationLinkerd+"proxy-version", "1"),
			annotated(annotationLinkerd+"inbound-port", "1"), annotated(annotationLinkerd+"outbound-port", "1"), annotated(annotationLinkerd+"proxy-await", "1"),
			annotated("linkerd.io/inject", "enabled"), annotated("example.com/skip-oubound-ports", "1"), annotated(annotationLinkerd+"proxy-uid", "7"), func(p *Pod) { runsAs(5, 5)(p.container("app")) },
		), nil},
		"Istio": {meshedPod(annotated(annotationTraffic+"excludeInboundPort", "80")), []string{
			"annotation traffic.sidecar.istio.io/excludeInboundPort is not known and has no effect: write traffic.sidecar.istio.io/excludeInboundPorts",
		}},
		"Istio, unlike any":  {meshedPod(annotated(annotationTraffic+"ports", "80")), []string{"annotation traffic.sidecar.istio.io/ports is not known and has no effect"}},
		"Istio's mode":       {meshedPod(annotated("sidecar.istio.io/interceptionmode", "TPROXY")), []string{": write sidecar.istio.io/interceptionMode"}},
		"Istio's interfaces": {meshedPod(annotated("istio.io/reroute-virtual-interface", "net1")), []string{": write istio.io/reroute-virtual-interfaces"}},
		"Istio's other keys": {meshedPod(
			annotated("sidecar.istio.io/proxyCPU", "1"), annotated("istio.io/rev", "1"), annotated("status.sidecar.istio.io/port", "1"), annotated("sidecar.istio.io/rewriteAppHTTPProbers", "1"),
		), nil},
		"a variable":            {meshedPod(withEnv("DROP_INVALID", "true")), []string{"DROP_INVALID of container istio-proxy is not known and has no effect: write INVALID_DROP"}},
		"a variable, and right": {meshedPod(withEnv("DROP_INVALID", "true"), withEnv(envDropInvalid, "true")), nil},
	} {
		_, warnings, err := decide(test.pod, withLinkerd(), only4)
		if err != nil || len(warnings) != len(test.want) {
			t.Errorf("%s: got %q, %v", name, warnings, err)
			continue
		}
		for i, want := range test.want {
			if !strings.HasSuffix(warnings[i], want) {
				t.Errorf("%s: got %q, want %q", name, warnings[i], want)
			}
		}
	}
}
