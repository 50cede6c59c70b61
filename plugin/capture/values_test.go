// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestPortRangeJSON encodes a port as a number, and a range as two, and reads both.
func TestPortRangeJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]PortRange{"80": {80, 80}, "[80,90]": {80, 90}} {
		encoded, err := json.Marshal(want)
		var got PortRange
		if err != nil || string(encoded) != text || json.Unmarshal(encoded, &got) != nil || got != want {
			t.Errorf("%s: encoded as %s, %v, and read as %v", text, encoded, err, got)
		}
	}
	if err := new(PortRange).UnmarshalJSON([]byte(`"80"`)); err == nil {
		t.Error("a text is read as a port")
	}
}

// TestSkippedPortSyntax reads what Linkerd's annotations have: a port, or two with a dash between them.
func TestSkippedPortSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"80": "80", "80-90": "80-90", "80-80": "80", "x-90": "", "80-x": "", "90-80": "expected the lower port first", "80-": ""} {
		got, err := parsePortRange(text)
		if valid := strings.HasPrefix(want, "80"); valid != (err == nil) || valid && got.String() != want ||
			!valid && strings.Contains(err.Error(), "lower port first") != (want != "") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// TestLinkerdIDs reads the id of a proxy: none is the mesh's own, as are root's and negative ones.
func TestLinkerdIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint32{"": 7, "0": 7, "-1": 7, "5": 5, "4294967295": 4294967295} {
		d := decider{pod: Pod{Annotations: map[string]string{"key": text}}}
		if got := d.idOf("key", 7); got != want || d.faults != nil {
			t.Errorf("%q: %d, %v", text, got, d.faults)
		}
	}
	for _, text := range []string{"4294967296", "x", "-"} {
		d := decider{pod: Pod{Annotations: map[string]string{"key": text}}}
		if d.idOf("key", 7); len(d.faults) != 1 {
			t.Errorf("%q: %v", text, d.faults)
		}
	}
}

// TestUsableFamilies counts no address that other hosts can't reach.
func TestUsableFamilies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"192.0.2.1": {true, false}, "::ffff:192.0.2.1": {true, false}, "2001:db8::1": {false, true},
		"127.0.0.1": {}, "::1": {}, "169.254.0.1": {}, "fe80::1": {}, "0.0.0.0": {}, "::": {},
	} {
		if has4, has6 := usableFamilies([]netip.Addr{netip.MustParseAddr(text)}); has4 != want[0] || has6 != want[1] {
			t.Errorf("%s: IPv4 %v, IPv6 %v", text, has4, has6)
		}
	}
}

// TestPodsOfEarlierVersions has groups that a pod of an earlier version does not list.
func TestPodsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[int][]int64{1: {AnyGroup}, 2: nil} {
		pod := Pod{}
		if pod.Complete(version); !slices.Equal(pod.Groups, want) {
			t.Errorf("version %d: groups %v", version, pod.Groups)
		}
	}
}

// TestGroupOfNone warns of no container if the proxy has no gid.
func TestGroupOfNone(t *testing.T) {
	t.Parallel()
	for gid, warned := range map[uint32]bool{0: false, 2000: true} {
		d := decider{pod: Pod{Groups: []int64{0, 2000}, Containers: []Container{{Name: "app", GID: ID{Number: 1}}}}, proxy: &Container{}, mesh: meshOf(config.Istio)}
		if d.checkGroups(gid); len(d.warnings)+len(d.refusals) > 0 != warned {
			t.Errorf("gid %d: warnings %q, refusals %q", gid, d.warnings, d.refusals)
		}
	}
}

// TestMarkedByAuthor knows the annotations that a pod's author writes, not those of an injector.
func TestMarkedByAuthor(t *testing.T) {
	t.Parallel()
	all := config.DefaultSettings().Meshes
	for name, tt := range map[string]struct {
		key    string
		meshes []config.MeshName
		want   bool
	}{
		"own":          {"capture-cni.io/outbound-port", all, true},
		"not chosen":   {"capture-cni.io/outbound-port", []config.MeshName{config.Istio}, false},
		"an injector":  {"sidecar.istio.io/status", all, false},
		"another key":  {"example.com/outbound-port", all, false},
		"without mesh": {"capture-cni.io/outbound-port", nil, false},
	} {
		if got := MarkedByAuthor(map[string]string{tt.key: "1"}, tt.meshes); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for container, want := range map[string]bool{"istio-proxy": true, "linkerd-proxy": true, "": false, "app": false} {
		if IsProxy(container) != want {
			t.Errorf("%q is a proxy: %v", container, !want)
		}
	}
}

// TestRulesetFacts reads what callers ask of a Ruleset: a chain, its Stamp, and whether lo needs an address.
func TestRulesetFacts(t *testing.T) {
	t.Parallel()
	source := Rule{Match: Match{Src: List[netip.Prefix]{Values: []netip.Prefix{ProxySourceIPv6}}}}
	chains := []Chain{{Table: NAT, Name: "a", Hook: Output}, {Table: NAT, Name: "b", Rules: []Rule{source}}, {Table: Raw, Name: "c"}}
	rs := Ruleset{IPv6: Captured, Chains: chains}
	for _, tt := range []struct {
		table Table
		name  string
		rules int
	}{{NAT, "b", 1}, {NAT, "a", 0}, {Raw, "b", 0}, {NAT, "missing", 0}} {
		if got := rs.Chain(tt.table, tt.name); got.Table != tt.table || got.Name != tt.name || got.Hook != "" || len(got.Rules) != tt.rules {
			t.Errorf("chain %s of %s: %+v", tt.name, tt.table, got)
		}
	}
	for _, tt := range []struct {
		rs   Ruleset
		want bool
	}{{rs, true}, {Ruleset{IPv6: Refused, Chains: chains}, false}, {Ruleset{IPv6: Captured, Chains: chains[:1]}, false}} {
		if tt.rs.NeedsProxySource() != tt.want {
			t.Errorf("%+v needs the address: %v", tt.rs, !tt.want)
		}
	}
	stamped := rs.WithStamp()
	stamp := rs.Stamp()
	if rs.IPv6 = Refused; rs.Stamp() == stamp {
		t.Error("other rules have the same stamp")
	}
	if stamped.IPv6 = Refused; stamped.Stamp() != stamp {
		t.Error("the stamp is computed again")
	}
}
