// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
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
	early := withInit("first")
	for name, test := range map[string]struct {
		changes []func(*Pod)
		policy  config.SharedUIDPolicy
		want    []string
	}{
		"a classic sidecar":                      {changes: []func(*Pod){early}, want: []string{fails + change + itself}},
		"a classic sidecar, shared uid refused":  {changes: []func(*Pod){early}, policy: forbidden, want: []string{fails + change}},
		"a native sidecar first":                 {changes: []func(*Pod){native, withInit("first")}},
		"a native sidecar after it":              {changes: []func(*Pod){early, native}, want: []string{fails + move + itself}},
		"a native sidecar, shared uid refused":   {changes: []func(*Pod){early, native}, policy: forbidden, want: []string{fails + move}},
		"another sidecar before a native one":    {changes: []func(*Pod){withInit("first", keepsRunning), native}, want: []string{waits + move}},
		"another sidecar before a classic one":   {changes: []func(*Pod){withInit("first", keepsRunning)}, want: []string{waits + change}},
		"another sidecar after it":               {changes: []func(*Pod){native, withInit("first", keepsRunning)}},
		"a proxy that is an init container only": {changes: []func(*Pod){early, ending}, want: []string{fails + change + itself}},
	} {
		settings := config.DefaultSettings()
		settings.SharedProxyUID = cmp.Or(test.policy, settings.SharedProxyUID)
		_, warnings, err := decide(meshedPod(test.changes...), settings, only4)
		if err != nil || !slices.Equal(warnings, test.want) {
			t.Errorf("%s: got %q, %v\nwant %q", name, warnings, err, test.want)
		}
	}
}

// TestEarlyExempt expects no warning of an init container that starts before the proxy if nothing that
// its user sends is captured.
func TestEarlyExempt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pod  Pod
		uid  int64
		warn bool
	}{
		{consulPod(`,"ExcludeUIDs":["5996","7"]`), 7, false},
		{consulPod(`,"ExcludeUIDs":["5996","7"]`), 8, true},
		{consulPod(`,"ExcludeUIDs":["5996","7"],"ConsulDNSPort":8600`), 7, true}, // its queries go to the proxy
		{consulPod(`,"ExcludeUIDs":["0"]`), 0, true},                             // the image may set another uid
		{kumaPod("redirect: {outbound: {excludePortsForUIDs: ['5-7']}, dns: {enabled: true, captureAll: true}}"), 7, false},
		{kumaPod("redirect: {outbound: {excludePortsForUIDs: ['tcp::7']}, dns: {enabled: true, captureAll: true}}"), 7, true},
		{kumaPod("redirect: {outbound: {excludePortsForUIDs: ['udp::7']}}"), 7, true},
		{kumaPod("redirect: {outbound: {excludePortsForUIDs: ['tcp::7']}}"), 7, false},
		{kumaPod("redirect: {outbound: {excludePortsForUIDs: ['*:80:7'], excludePortsForIPs: [10.0.0.0/8]}}"), 7, true},
		{kumaPod("redirect: {outbound: {enabled: false}}"), 7, false},
	} {
		tt.pod.Containers = slices.Insert(tt.pod.Containers, 1, Container{Name: "fetch", Init: true, UID: ID{Number: tt.uid}})
		_, warnings, err := decide(tt.pod, withLinkerd(), only4)
		if warned := strings.Contains(fmt.Sprint(warnings), "init container fetch starts before "); err != nil || warned != tt.warn || len(warnings) > 1 {
			t.Errorf("uid %d, %v: warned %v: %q, %v", tt.uid, tt.pod.Annotations, warned, warnings, err)
		}
	}
}

// TestMisspelt warns of keys that look like one that decides, and names that one. The
// other keys of a mesh are its own affair.
func TestMisspelt(t *testing.T) {
	t.Parallel()
	const unknown = "annotation %s is not known and has no effect"
	for key, meant := range map[string]string{ // "" for a key that is not warned of
		"config.linkerd.io/skip-oubound-ports": annotationSkipOutbound,
		"config.linkerd.io/skip-inbuond-ports": annotationSkipInbound,
		"config.linkerd.io/skipInboundPorts":   annotationSkipInbound,
		"config.linkerd.io/skip-subnet":        annotationSkipSubnets,
		"config.linkerd.io/proxy-uuid":         annotationLinkerdUID,
		"config.linkerd.io/proxy-log-level":    "",
		"config.linkerd.io/proxy-version":      "",
		"config.linkerd.io/proxy-await":        "",
		"config.linkerd.io/opaque-ports":       "",
		"config.linkerd.io/pod-inbound-ports":  "",
		"config.linkerd.io/inbound-port":       "",
		"config.linkerd.io/outbound-port":      "",
		"linkerd.io/inject":                    "",
		"example.com/skip-oubound-ports":       "",

		"traffic.sidecar.istio.io/excludeInboundPort": annotationExcludeInboundPorts,
		"sidecar.istio.io/interceptionmode":           annotationInterceptionMode,
		"istio.io/reroute-virtual-interface":          annotationRerouteInterfaces,
		"sidecar.istio.io/proxyCPU":                   "",
		"sidecar.istio.io/rewriteAppHTTPProbers":      "",
		"status.sidecar.istio.io/port":                "",
		"istio.io/rev":                                "",
	} {
		pod := meshedPod(annotated(key, "1"))
		if strings.Contains(key, "linkerd") {
			pod = linkerdPod(annotated(key, "1"))
		}
		var want []string
		if meant != "" {
			want = []string{fmt.Sprintf(unknown+": write %s", key, meant)}
		}
		if _, warnings, err := decide(pod, withLinkerd(), only4); err != nil || !slices.Equal(warnings, want) {
			t.Errorf("got %q, %v, want %q", warnings, err, want)
		}
	}
	const unlike = annotationTraffic + "ports"
	_, warnings, err := decide(meshedPod(annotated(unlike, "1")), withLinkerd(), only4)
	if want := fmt.Sprintf(unknown, unlike); err != nil || !slices.Equal(warnings, []string{want}) {
		t.Errorf("got %q, %v, want %q", warnings, err, want)
	}
}

// TestMisspeltVariable warns of the other order of words, which has no effect.
func TestMisspeltVariable(t *testing.T) {
	t.Parallel()
	misspelt := withEnv("DROP_INVALID", "true")
	in, warnings, err := decide(meshedPod(misspelt), config.DefaultSettings(), only4)
	want := "DROP_INVALID of container istio-proxy is not known and has no effect: write INVALID_DROP"
	if err != nil || in.DropInvalid || !slices.Equal(warnings, []string{want}) {
		t.Errorf("got %v, %q, %v, want %q", in.DropInvalid, warnings, err, want)
	}
	_, warnings, err = decide(meshedPod(misspelt, withEnv(envDropInvalid, "true")), config.DefaultSettings(), only4)
	if err != nil || len(warnings) > 0 {
		t.Errorf("both: got %q, %v", warnings, err)
	}
}
