// SPDX-License-Identifier: Apache-2.0

package capture

import (
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
