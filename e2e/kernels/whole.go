// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// whole are the packages whose tests send packets or read rules, without the tests that a
// guest can't run.
var whole = []Selection{
	// They execute Istio's programs, haproxy or the compiler, or read the documents.
	{Package: "e2e/traffic", Skipped: "^(TestOracle.*|TestHAProxy|TestExamples|TestFenceExamples)$"},
	// The earlier release, documents and sources are not in the guest; its programs bear no
	// version, as they are the same for each commit; 64 ADDs at once take it too long.
	{Package: "e2e/protocol", Skipped: "^(TestEarlierPlugin|TestHour|TestManyRecords|TestOwnVersion|TestVersion)$"},
	// They build the agent, measure it, or need the earlier release or another module's program.
	{Package: "e2e/guard", Skipped: "^(TestLargestLists|TestEarlierPods.*|TestDeletedGuardMounts|TestKilledDuringUpdates|TestNeedsNoCredentials|TestHangingRuntime|TestPrometheus)$"},
	// It is about limits of this project, whatever the kernel.
	{Package: "plugin/netfilter", Skipped: "^TestLimits$"},
	{Package: "plugin/nfnetlink", Skipped: "^$"},
	{Package: "plugin/nftables", Skipped: "^$"},
	// It executes programs that the guest lacks.
	{Package: "plugin/iptables", Skipped: "^TestOutputLimits$"},
	{Package: "plugin/xtables", Skipped: "^$"},
	// It counts threads, of which Go keeps hundreds on one emulated processor.
	{Package: "plugin/podnet", Skipped: "^TestNothingStays$"},
	{Package: "install/kernel", Skipped: "^$"},
}

// Whole are the tests that make kernels runs on an architecture. On another than AMD64,
// the smoke stands for the packages of e2e.
func Whole(architecture *Architecture) []Selection {
	if architecture == AMD64 {
		return whole
	}
	return slices.Concat(smoke, slices.DeleteFunc(slices.Clone(whole), func(s Selection) bool { return strings.HasPrefix(s.Package, "e2e/") }))
}

// Passed counts the tests that passed. Its error has the names of those that did not,
// and what was printed.
func (s Selection) Passed(o Outcome) (count int, err error) {
	failed := regexp.MustCompile(`(?m)^\s*--- (?:FAIL|SKIP): (\S+)`).FindAllStringSubmatch(o.Output, -1)
	count = strings.Count(o.Output, "\n--- PASS: ")
	if o.Status != 0 || len(failed) > 0 || count == 0 {
		var names []string
		for _, match := range failed {
			names = append(names, match[1])
		}
		return 0, fmt.Errorf("%s: status %d, not passed: %s\n%s", o.Name, o.Status, strings.Join(names, ", "), o.Output)
	}
	return count, s.Failure(o)
}
