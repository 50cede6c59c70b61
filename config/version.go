// SPDX-License-Identifier: Apache-2.0

package config

import (
	"runtime/debug"
	"strings"
)

// Version returns a program's version and commit as the Go command stamped them:
// a tag followed by the commit, or a pseudo-version, which contains the commit.
func Version(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key != "vcs.revision" || len(setting.Value) < 12 {
			continue
		}
		if commit := setting.Value[:12]; !strings.Contains(info.Main.Version, commit) {
			return info.Main.Version + " (" + commit + ")"
		}
	}
	return info.Main.Version
}

// OwnVersion returns the version of the running program.
func OwnVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return Version(info)
}
