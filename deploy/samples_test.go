// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTraceSample expects the trace whose beginning the guide for debugging shows to be today's.
func TestTraceSample(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), agent(t), "render", "--mode=dropin", "--pod=../e2e/demo/pods/web.yaml", "--in", "--to=10.1.2.3:15021").Output()
	if err != nil {
		t.Fatal(err)
	}
	verdict, _, found := strings.Cut(string(out), "\npath ")
	if !found || !strings.Contains(read(t, "guides/debug.md"), "```text\n"+verdict+"\n```") {
		t.Errorf("guides/debug.md has no block with the beginning of this output:\n%s", out)
	}
}

// TestStampSamples expects the stamps that documents show to be those of a pod with Istio's
// defaults.
func TestStampSamples(t *testing.T) {
	golden := read(t, "../plugin/capture/testdata/defaults/ruleset.nft")
	documents := guideTexts(t)
	documents["../README.md"] = read(t, "../README.md")
	for path, text := range documents {
		for _, stamp := range regexp.MustCompile(`\bv[0-9]+ ipv4\S* [0-9a-f]{32}`).FindAllString(text, -1) {
			if !strings.Contains(golden, stamp) {
				t.Errorf("%s has the stamp %q: expected that of defaults/ruleset.nft", path, stamp)
			}
		}
	}
}
