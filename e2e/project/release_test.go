// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReleaseNotes runs the release workflow's command for the notes of the chart's
// version: they are that version's part of the changelog, and no other's, with absolute links.
func TestReleaseNotes(t *testing.T) {
	version := only(t, `(?m)^appVersion: (\S+)$`, read(t, "deploy/chart/Chart.yaml"))
	if chart := only(t, `(?m)^version: (\S+)$`, read(t, "deploy/chart/Chart.yaml")); chart != version {
		t.Errorf("the chart's version is %s, its appVersion %s", chart, version)
	}
	command := only(t, `(?m)^ *notes=\$\((.*)\)$`, read(t, ".github/workflows/release.yaml"))
	bash := exec.CommandContext(t.Context(), "bash", "-c", command)
	bash.Dir, bash.Env = root, append(bash.Environ(), "TAG=v"+version, "GITHUB_REPOSITORY=owner/name")
	notes, err := bash.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(read(t, "CHANGELOG.md"), "\n## "+version+", ")
	_, rest, _ = strings.Cut(rest, "\n")
	want, _, _ := strings.Cut(rest, "\n## ")
	want = strings.ReplaceAll(want, "](deploy/", "](https://github.com/owner/name/blob/v"+version+"/deploy/")
	if minor := version[:strings.LastIndexByte(version, '.')]; !strings.Contains(read(t, "SECURITY.md"), "\n| "+minor+" | all |\n") {
		t.Errorf("SECURITY.md does not support %s", minor)
	}
	if !found || strings.TrimSpace(want) == "" || strings.TrimSpace(string(notes)) != strings.TrimSpace(want) {
		t.Errorf("the notes of %s have %d bytes, want the %d of its part of CHANGELOG.md", version, len(notes), len(want))
	}
}

// TestPinnedActions expects each action and each image of the workflows by its digest, and
// rights that are named.
func TestPinnedActions(t *testing.T) {
	pinned := regexp.MustCompile(`^uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$|^image: \S+@sha256:[0-9a-f]{64}$`)
	for _, workflow := range []string{"pull-request", "release"} {
		text := read(t, ".github/workflows/"+workflow+".yaml")
		for _, line := range regexp.MustCompile(`(?m)(uses|image): .*$`).FindAllString(text, -1) {
			if !pinned.MatchString(line) {
				t.Errorf("%s: %q: expected a digest, and an action's version as a comment", workflow, line)
			}
		}
		if !strings.Contains(text, "\npermissions:\n  contents: read\n") {
			t.Errorf("%s: expected no right by default but to read the sources", workflow)
		}
	}
}

// only returns what the only match of a pattern has in its parentheses.
func only(t *testing.T, pattern, text string) string {
	t.Helper()
	matches := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(matches) != 1 {
		t.Fatalf("%d matches of %s, want one", len(matches), pattern)
	}
	return matches[0][1]
}
