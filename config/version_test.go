// SPDX-License-Identifier: Apache-2.0

package config

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for _, test := range []struct{ version, tags, revision, want string }{
		{"v1.2.3", "", commit, "v1.2.3 (0123456789ab)"},
		{"v1.2.3", "", "", "v1.2.3"}, // go install …@v1.2.3
		{"v0.0.0-20261122061500-0123456789ab+dirty", "", commit, "v0.0.0-20261122061500-0123456789ab+dirty"},
		{"(devel)", "", "", "(devel)"},
		{"(devel)", "v1.2.3", "", "v1.2.3"}, // the Makefile's tag
		{"(devel)", "netgo", "", "(devel)"},
		{"v1.2.4", "v1.2.3", "", "v1.2.4"},
		{"(devel)", "", "short", "(devel)"},
		{"v1.2.3", "", commit[:12], "v1.2.3 (0123456789ab)"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: test.version}}
		if test.tags != "" {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: "-tags", Value: test.tags})
		}
		if test.revision != "" {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-22T06:15:00Z"}, debug.BuildSetting{Key: "vcs.revision", Value: test.revision})
		}
		if got := Version(info); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}
