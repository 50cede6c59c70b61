// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"regexp"
	"strings"
)

// whole are the packages whose tests send packets or read rules, each with the tests
// that a guest can't run.
var whole = []struct{ name, skipped string }{
	// They execute Istio's programs, haproxy or the compiler.
	{"e2e/traffic", "^(TestOracle.*|TestHAProxy)$"},
	// The earlier release is not in the guest; its programs bear no version, as they are
	// the same for each commit.
	{"e2e/protocol", "^(TestTwoVersions|TestOwnVersion|TestVersion)$"},
	// They build the agent, measure it, or need the earlier release.
	{"e2e/guard", "^(TestCost|TestLargestLists|TestClockSteps|TestPodsOfEarlierRelease|TestReportedOnceReceived|TestDeletedGuardMounts|TestNeedsNoCredentials|TestHangingRuntime)$"},
	// It is about limits of this project, whatever the kernel.
	{"plugin/netfilter", "^TestLimits$"},
	{"plugin/nfnetlink", "^$"},
	{"plugin/nftables", "^$"},
	{"plugin/iptables", "^$"},
	{"plugin/xtables", "^$"},
	{"plugin/podnet", "^$"},
	{"install/conntrack", "^$"},
	{"install/kernel", "^$"},
}

// Whole are the packages, each with a job: all of its tests that a guest can run.
func Whole() (packages []string, jobs []Job) {
	for _, p := range whole {
		packages = append(packages, p.name)
		jobs = append(jobs, Job{Runs: []Run{Selection{Package: p.name}.run("-test.skip=" + p.skipped)}})
	}
	return packages, jobs
}

// Passed counts the tests that passed. Its error has the names of those that did not,
// and what was printed.
func Passed(o Outcome) (count int, err error) {
	failed := regexp.MustCompile(`(?m)^\s*--- (?:FAIL|SKIP): (\S+)`).FindAllStringSubmatch(o.Output, -1)
	count = strings.Count(o.Output, "\n--- PASS: ")
	if o.Status != 0 || len(failed) > 0 || count == 0 {
		var names []string
		for _, match := range failed {
			names = append(names, match[1])
		}
		return 0, fmt.Errorf("%s: status %d, not passed: %s\n%s", o.Name, o.Status, strings.Join(names, ", "), o.Output)
	}
	return count, nil
}
