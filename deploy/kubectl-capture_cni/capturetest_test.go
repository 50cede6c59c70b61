// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/deploy/capturetest"
	found "github.com/capture-cni/capture-cni/install/report"
)

// TestTestFails expects exit status 2 for wrong flags, without agents, and if the API server refuses all
// requests.
func TestTestFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for flags, want := range map[string]string{
		"--mode none":     `--mode is "none": expected redirect, tproxy or both`,
		"--timeout 0":     "--timeout is 0s: expected a positive duration",
		"--nodes nowhere": `--nodes has "nowhere"`,
		"":                "no node has an agent of namespace capture-cni",
	} {
		if _, errors, status := c.run(t, append([]string{"test"}, strings.Fields(flags)...)...); status != 2 || !strings.Contains(errors, want) {
			t.Errorf("%s: status %d: %s", flags, status, errors)
		}
	}
	c.addNode("node-1", 0, state(&found.Pods{}))
	c.pods[0].Spec.Containers[0].Image = "agent:1"
	out, errors, status := c.run(t, "test", "--mode", "redirect") // this API server creates no objects
	if status != 2 || !strings.Contains(errors, "nothing could be tested") {
		t.Errorf("status %d: %s", status, errors)
	}
	expect(t, errors, "REDIRECT: creating namespace capture-cni-test-", "nothing could be tested")
	expect(t, out, "node-1  node-1  REDIRECT", "skipped", "creating namespace capture-cni-test-", "next for REDIRECT: ", "capture-cni-operator-test", "0 passed, 0 failed, 1 skipped; nodes tested: node-1\n")
	if out, _, _ := c.run(t, "test", "-o", "json"); !strings.Contains(out, `"result": "skipped"`) || !strings.Contains(out, `"code": "test-skipped"`) {
		t.Errorf("as JSON:\n%s", out)
	}
	out, _, status = c.run(t, "test", "-o", "junit")
	var suite junitSuite
	if err := xml.Unmarshal([]byte(out), &suite); err != nil || status != 2 || suite.Tests != 2 || suite.Skipped != 2 {
		t.Errorf("as JUnit, status %d: %v\n%s", status, err, out)
	}
	if _, errors, status := c.run(t, "status", "-o", "junit"); status != 2 || !strings.Contains(errors, `--output is "junit"`) {
		t.Errorf("status as JUnit: %d, %s", status, errors)
	}
}

// TestWriteTest expects a row for each check, and the next steps after the rows.
func TestWriteTest(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report := &capturetest.Report{Nodes: []string{"a", "b"}, Archive: "x.tar.gz", Notes: []string{"a note"}, Results: []capturetest.Result{
		{Client: "a", Server: "b", Mode: capturetest.Redirect, Family: "IPv4", Check: "to a pod", Finding: found.Finding{Severity: found.OK}},
		{Client: "a", Server: "b", Mode: capturetest.Redirect, Family: "IPv6", Check: "to a Service", Finding: found.Finding{
			Code: found.TestMisrouted, Severity: found.Problem, Reason: "by\x1bpassed", Next: "look",
		}},
		{Client: "a", Server: "b", Mode: capturetest.TProxy, Finding: found.Finding{Code: found.TestSkipped, Severity: found.NotKnown, Reason: "refused"}},
	}}
	writeTest(&out, report)
	expect(t, out.String(), "a       b       REDIRECT  IPv4    to a pod      passed\n", "REDIRECT  IPv6    to a Service  failed", "by?passed [test-misrouted]\n",
		"next for REDIRECT: look", "1 passed, 1 failed, 1 skipped; nodes tested: a, b\n", "Note: a note", "Codes: ", "Report: x.tar.gz")
	out.Reset()
	writeJUnit(newScreen(&out), report)
	want := xml.Header + `<testsuite name="capture-cni" tests="3" failures="1" skipped="1">
  <testcase classname="REDIRECT.a to b" name="IPv4 to a pod"></testcase>
  <testcase classname="REDIRECT.a to b" name="IPv6 to a Service">
    <failure message="by�passed [test-misrouted]" type="test-misrouted">look</failure>
  </testcase>
  <testcase classname="TPROXY.a to b" name="all">
    <skipped message="refused [test-skipped]" type="test-skipped"></skipped>
  </testcase>
  <system-out>a note</system-out>
</testsuite>
`
	if out.String() != want {
		t.Errorf("as JUnit:\n%s\nwant:\n%s", out.String(), want)
	}
}
