// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// node applies rules by the iptables that it has.
type node struct{ netfilter.Backend }

func find(t *testing.T, tools toolset, backend config.Backend) node {
	t.Helper()
	path := os.Getenv("PATH")
	t.Setenv("PATH", string(tools)+string(os.PathListSeparator)+path)
	found, err := netfilter.Find(t.Context(), backend)
	lab.Check(t, err)
	t.Setenv("PATH", path)
	return node{found}
}

func (n node) apply(t *testing.T, pod *lab.Host, rs capture.Ruleset) {
	t.Helper()
	lab.Check(t, pod.Do(func() error { return n.Apply(t.Context(), rs) }))
}

func (n node) expectNoDifference(t *testing.T, pod *lab.Host, rs capture.Ruleset) {
	t.Helper()
	lab.Check(t, pod.Do(func() error {
		want, err := netfilter.Reference(t.Context(), n, rs)
		if err != nil {
			return err
		}
		got, err := n.Dump(t.Context())
		if differences := dump.Diff(want, got); len(differences) > 0 {
			t.Errorf("CHECK finds %q", differences)
		}
		return err
	}))
}

// forEachVariant runs a test with each suite's iptables of both variants, and with rules
// of every kind.
func forEachVariant(t *testing.T, test func(t *testing.T, tools toolset, backend config.Backend, rs capture.Ruleset)) {
	t.Helper()
	forEachSuite(t, func(t *testing.T, tools toolset) {
		for backend := range variants {
			for name, rs := range rulesets(t) {
				t.Run(string(backend)+"/"+name, func(t *testing.T) { test(t, tools, backend, rs) })
			}
		}
	})
}

// programs returns how the names of the programs begin, for the families of the rules.
func programs(rs capture.Ruleset, backend config.Backend) []string {
	names := []string{"iptables" + variants[backend]}
	if len(rs.For(capture.IPv6).Chains) > 0 {
		names = append(names, "ip6tables"+variants[backend])
	}
	return names
}

// unsteady is what differs between two listings of the same rules: times and counters.
var unsteady = regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]`)

// save returns what iptables-save lists, with the tables in a fixed order.
func save(t *testing.T, tools toolset, host *lab.Host, program string) string {
	t.Helper()
	listing := unsteady.ReplaceAllString(tools.run(t, host, "", program+"-save"), "")
	return strings.Join(slices.Sorted(strings.SplitAfterSeq(listing, "COMMIT\n")), "")
}
