// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReleaseNotes runs the release workflow's command for the notes of the chart's
// version: they are that version's part of the changelog, and no other's.
func TestReleaseNotes(t *testing.T) {
	version := only(t, `(?m)^appVersion: (\S+)$`, read(t, "deploy/chart/Chart.yaml"))
	if chart := only(t, `(?m)^version: (\S+)$`, read(t, "deploy/chart/Chart.yaml")); chart != version {
		t.Errorf("the chart's version is %s, its appVersion %s", chart, version)
	}
	command := only(t, `(?m)^ *notes=\$\((.*)\)$`, read(t, ".github/workflows/release.yaml"))
	bash := exec.CommandContext(t.Context(), "bash", "-c", command)
	bash.Dir, bash.Env = root, append(bash.Environ(), "TAG=v"+version)
	notes, err := bash.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(read(t, "CHANGELOG.md"), "\n## "+version+", ")
	_, rest, _ = strings.Cut(rest, "\n")
	want, _, _ := strings.Cut(rest, "\n## ")
	if !found || strings.TrimSpace(want) == "" || strings.TrimSpace(string(notes)) != strings.TrimSpace(want) {
		t.Errorf("the notes of %s have %d bytes, want the %d of its part of CHANGELOG.md", version, len(notes), len(want))
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
