// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// TestWithURLs names documents by URLs that all patch releases have in common.
func TestWithURLs(t *testing.T) {
	t.Parallel()
	const site = "https://github.com/capture-cni/capture-cni/blob/"
	for _, tt := range []struct{ text, version, want string }{
		{"follow deploy/guides/upgrade.md", "v0.3.1", "follow " + site + "v0.3.0/deploy/guides/upgrade.md"},
		{"see " + CodesPage + ", section 2", "0.4.0 (0123456789ab)", "see " + site + "v0.4.0/deploy/reference/findings.md, section 2"},
		{"deploy/guides/nodes.md", "(devel)", site + "main/deploy/guides/nodes.md"},
		{"deploy/guides/nodes.md", "v0.0.0-20261127120000-0123456789ab", site + "main/deploy/guides/nodes.md"},
		{"deploy/guides/nodes.md", "v1.0.2", site + "v1.0.0/deploy/guides/nodes.md"},
		{"helm install deploy/chart", "v0.3.0", "helm install deploy/chart"},
	} {
		if got := withURLs(tt.text, tt.version); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
	f := Finding{Code: Upgrade, Subject: "capture-cni", Next: "deploy/guides/upgrade.md"}
	if got, want := f.String(), "capture-cni: "+WithURLs(f.Next); got != want || got == "capture-cni: "+f.Next {
		t.Errorf("a finding is %s, want %s", got, want)
	}
}
