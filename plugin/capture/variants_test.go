// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestLists reads lists from annotations.
func TestLists(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.Mesh.ExcludeOutboundIPRanges = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	settings.Mesh.OutboundOwnerGroups = []uint32{7, 0, 7}
	for _, test := range []struct {
		key, value string
		got        func(Intent) any
		want       string
	}{
		{annotationIncludeInboundPorts, "443, 80,443", func(in Intent) any { return in.InboundPorts }, "{false [80 443]}"},
		{annotationIncludeInboundPorts, " *", func(in Intent) any { return in.InboundPorts }, "{true []}"},
		{annotationIncludeInboundPorts, " ", func(in Intent) any { return in.InboundPorts }, "{false []}"},
		{annotationIncludeInboundPorts, "0", func(in Intent) any { return in.InboundPorts }, "{false [0]}"},
		{annotationExcludeInboundPorts, "15090,1", func(in Intent) any { return in.ExcludeInboundPorts }, "[1 15020 15021 15090]"},
		{annotationIncludeOutboundPorts, "5,4,5", func(in Intent) any { return in.IncludeOutboundPorts }, "[4 5]"},
		{annotationExcludeOutboundPorts, "80", func(in Intent) any { return in.ExcludeOutboundPorts }, "[80]"},
		{annotationIncludeOutboundRanges, "10.1.2.3/16,::1/128,10.0.0.0/8", func(in Intent) any { return in.OutboundRanges }, "{false [10.0.0.0/8 ::1/128]}"},
		{annotationExcludeOutboundRanges, "10.0.0.0/8,fd00:1::/32", func(in Intent) any { return in.ExcludeOutboundRanges }, "[10.0.0.0/8 fd00::/8]"},
		{annotationExcludeOutboundRanges, "", func(in Intent) any { return in.ExcludeOutboundRanges }, "[10.1.0.0/16 fd00::/8]"},
		{annotationExcludeInterfaces, "eth1, eth0,eth1", func(in Intent) any { return in.ExcludeInterfaces }, "[eth0 eth1]"},
		{annotationKubevirtInterfaces, "k6t", func(in Intent) any { return in.RerouteInterfaces }, "[k6t]"},
		{"", "", func(in Intent) any { return in.OwnerGroups }, "[0 7]"},
	} {
		intent := intentOf(t, settings, only4, annotated(test.key, test.value))
		if got := fmt.Sprint(test.got(intent)); got != test.want {
			t.Errorf("%s %q: got %s, want %s", test.key, test.value, got, test.want)
		}
	}
}

// TestOlderName expects the newer annotation to override the older one, even if the
// newer is empty or the older invalid.
func TestOlderName(t *testing.T) {
	t.Parallel()
	for _, newer := range []string{"", "eth1"} {
		intent := intentOf(t, config.DefaultSettings(), only4,
			annotated(annotationRerouteInterfaces, newer), annotated(annotationKubevirtInterfaces, "not+a+name"))
		if got := strings.Join(intent.RerouteInterfaces, ","); got != newer {
			t.Errorf("%q: got %q", newer, got)
		}
	}
	_, _, err := decide(meshedPod(annotated(annotationKubevirtInterfaces, "not+a+name")), config.DefaultSettings(), only4)
	expect(t, "alone", err, annotationKubevirtInterfaces)
}

// TestBooleans reads booleans from the environment as Istio does, and warns of other
// values.
func TestBooleans(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ on, warned bool }{
		"true": {on: true}, "TRUE": {on: true}, "t": {on: true}, "1": {on: true},
		"false": {}, "0": {}, "F": {}, "": {warned: true}, "yes": {warned: true}, "tRUE": {warned: true}, " true": {warned: true},
	} {
		intent, warnings, err := decide(meshedPod(withEnv(envDropInvalid, text)), config.DefaultSettings(), only4)
		if err != nil || intent.DropInvalid != want.on || (len(warnings) > 0) != want.warned {
			t.Errorf("%s=%q: got %v, warnings %q, %v", envDropInvalid, text, intent.DropInvalid, warnings, err)
		}
		if got := intentOf(t, config.DefaultSettings(), only4, withEnv(envDNSCapture, text)).CaptureDNS; got != want.on {
			t.Errorf("%s=%q: got %v", envDNSCapture, text, got)
		}
	}
	onlyTheApp := func(p *Pod) { p.container("app").Env = map[string]string{envDropInvalid: "true"} }
	if intentOf(t, config.DefaultSettings(), only4, onlyTheApp).DropInvalid {
		t.Error("another container's environment has an effect")
	}
}

// TestFaultsBeforeRefusals has a pod with faults, refusals and warnings: faults take
// precedence over refusals, and warnings are always returned.
func TestFaultsBeforeRefusals(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.SandboxedRuntimeClasses, settings.SharedProxyUID = []string{"kata"}, config.SharedUIDRefuse
	refused := []func(*Pod){
		func(p *Pod) { p.container("app").UID.Number = 1337 },
		annotated(annotationTraffic+"z", ""), annotated(annotationTraffic+"a", ""),
		withEnv(envDropInvalid, "?"),
		withClass("kata"),
	}
	_, warnings, err := decide(meshedPod(refused...), settings, nil)
	if _, ok := errors.AsType[Refusal](err); !ok || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not all refusals are named: %v", err)
	}
	if len(warnings) != 3 || !slices.IsSorted(warnings) {
		t.Errorf("warnings %q", warnings)
	}
	_, warnings, err = decide(meshedPod(append(refused, annotated(annotationIncludeInboundPorts, "x,y"))...), settings, nil)
	faults, ok := errors.AsType[BadInput](err)
	if !ok || len(faults) != 1 || len(warnings) != 3 {
		t.Fatalf("got %v, warnings %q", err, warnings)
	}
	if want := (Fault{Key: annotationIncludeInboundPorts, Value: "x,y", Problem: faults[0].Problem}); faults[0] != want || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %+v, want one line for one annotation", faults[0])
	}
}
