// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// FuzzDecide passes any annotations: the result is an error of a known type, or
// rules that the kernel accepts.
func FuzzDecide(f *testing.F) {
	f.Add("REDIRECT", "*", "15020", "", "*", "", "", "eth1", "true")
	f.Add("NONE", "80, 81", "x", "0120", "10.0.0.0/8,::/0", "10.0.0.0/8,10.1.0.0/16,10.0.0.0/8", "eth0,eth0", "", "1")
	f.Add("TPROXY", "", ",", "*", "127.0.0.0/8", "1.2.3.4", "eth+", "a b", "")
	f.Fuzz(func(t *testing.T, mode, includeIn, exclude, includeOut, include, excludeRanges, excludeIf, reroute, invalid string) {
		pod := meshedPod(
			annotated(annotationInterceptionMode, mode),
			annotated(annotationIncludeInboundPorts, includeIn), annotated(annotationExcludeInboundPorts, exclude),
			annotated(annotationIncludeOutboundPorts, includeOut), annotated(annotationExcludeOutboundPorts, exclude),
			annotated(annotationIncludeOutboundRanges, include), annotated(annotationExcludeOutboundRanges, excludeRanges),
			annotated(annotationExcludeInterfaces, excludeIf), annotated(annotationRerouteInterfaces, reroute),
			withEnv(envDropInvalid, invalid), withEnv(envDualStack, invalid))
		decision, err := decideAt(pod, config.DefaultSettings(), dualStack)
		if err != nil {
			_, bad := errors.AsType[BadInput](err)
			if _, refused := errors.AsType[Refusal](err); !bad && !refused {
				t.Fatalf("an error of type %T: %v", err, err)
			}
			if len(err.Error()) > 64<<10 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if decision.Exemption != (Exemption{}) != (mode == modeNone) {
			t.Fatalf("mode %q: %+v", mode, decision.Exemption)
		}
		if mode == modeNone {
			return
		}
		expectLoadable(t, Rules(decision.Intent))
		again, err := decideAt(received(t, pod), config.DefaultSettings(), dualStack)
		if err != nil || !reflect.DeepEqual(again.Intent, decision.Intent) {
			t.Fatalf("received as JSON, it gets another decision: %+v, %v", again, err)
		}
	})
}

// expectLoadable checks for what the kernel, or nft, would refuse.
func expectLoadable(t *testing.T, rs Ruleset) {
	t.Helper()
	chains := map[string]bool{}
	for _, chain := range rs.Chains {
		if chains[chain.NFTName()] || len(chain.Rules) == 0 && chain.Hook == "" {
			t.Errorf("chain %s is a duplicate, or empty", chain.NFTName())
		}
		chains[chain.NFTName()] = true
	}
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			if len(rule.Why) == 0 || len(rule.Why) > 127 {
				t.Errorf("comment %q", rule.Why)
			}
			if rule.Do.Chain != "" && !chains[NFTChain(chain.Table, rule.Do.Chain)] {
				t.Errorf("a jump to the missing chain %s", rule.Do.Chain)
			}
		}
	}
	for _, set := range rs.Sets() {
		for i, element := range set.Elements {
			if prefix, ok := element.(netip.Prefix); ok && i > 0 && prefix.Overlaps(set.Elements[i-1].(netip.Prefix)) {
				t.Errorf("set %s: %v overlaps the previous element", set.Name, prefix)
			}
			if r, ok := element.(PortRange); ok && i > 0 && r.First <= set.Elements[i-1].(PortRange).Last {
				t.Errorf("set %s: %v overlaps the previous element", set.Name, r)
			}
			if slices.Index(set.Elements, element) != i {
				t.Errorf("set %s has %v twice", set.Name, element)
			}
		}
	}
	if strings.Contains(rs.String(), "{  }") {
		t.Error("an empty set")
	}
}
