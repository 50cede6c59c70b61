// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestLocks counts in the newest kernel how often an ADD takes the lock that the network
// configuration of all namespaces shares: once for each address, rule and route of IPv4
// that it adds, and for none that it reads. It waits for no other CPU.
func TestLocks(t *testing.T) {
	suite := buildSuite(t)
	image, err := fetch(t, Newest)
	if err != nil {
		lab.SkipGone(t, err)
	}
	tests := []struct {
		Trial
		added string
		rtnl  int
	}{
		{Trial{Mode: "TPROXY"}, "the first ADD loads modules", -1},
		{Trial{Mode: "REDIRECT", OnlyIPv4: true}, "nothing", 0},
		{Trial{Mode: "REDIRECT", OnlyIPv4: true, LoDown: true}, "lo is set up", 1},
		{Trial{Mode: "REDIRECT"}, "::6", 1},
		{Trial{Mode: "TPROXY", OnlyIPv4: true}, "a rule and a route", 2},
		{Trial{Mode: "TPROXY"}, "::6, two rules and a route; the kernel adds one of IPv6 without the lock", 4},
	}
	var trials []Trial
	for _, tt := range tests {
		tt.Backend = "nftables"
		trials = append(trials, tt.Trial)
	}
	run, err := CountLocks(trials)
	if err != nil {
		t.Fatal(err)
	}
	results, err := LockedBy(boot(t, Guest{Image: image, Suite: suite, Job: Job{Runs: []Run{run}}})[0])
	if err != nil || len(results) != len(tests)*len(LockedVerbs) {
		t.Fatalf("%d calls of %d pods were counted: %v", len(results), len(tests), err)
	}
	for i, result := range results {
		tt := tests[i/len(LockedVerbs)]
		var counts strings.Builder
		for _, call := range slices.Sorted(maps.Keys(result.Calls)) {
			fmt.Fprintf(&counts, "\n%4d %s", result.Calls[call], call)
		}
		t.Logf("%s, %s, %s: %s%s", image.Package, result.Mode, tt.added, result.Verb, &counts)
		if result.Fault != "" {
			t.Errorf("%s: %s", result.Verb, result.Fault)
		}
		if result.Verb != "ADD" || tt.rtnl < 0 {
			continue
		}
		if n := result.Count(Rtnl); n != tt.rtnl {
			t.Errorf("ADD takes rtnl %d times, want %d: %s", n, tt.rtnl, tt.added)
		}
		for function := range maps.Keys(result.Calls) {
			if strings.HasPrefix(function, "synchronize_") || strings.HasPrefix(function, "rcu_barrier") {
				t.Errorf("ADD waits for all CPUs: %s", function)
			}
		}
		if n := result.Count("switch_task_namespaces"); n == 0 {
			t.Error("ADD enters no namespace: nothing was counted")
		}
	}
}
