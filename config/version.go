// SPDX-License-Identifier: Apache-2.0

package config

import (
	"runtime/debug"
	"strings"
)

// Version returns a program's version and commit, as the Go command recorded them. The version is a tag
// or a pseudo-version or, if the Go command recorded none, the build tag that the Makefile and deploy/build
// set.
func Version(info *debug.BuildInfo) string {
	version := info.Main.Version
	for _, setting := range info.Settings {
		switch key, value := setting.Key, setting.Value; {
		case key == "-tags" && version == "(devel)" && strings.HasPrefix(value, "v"):
			version = value
		case key == "vcs.revision" && len(value) >= 12 && !strings.Contains(version, value[:12]):
			version += " (" + value[:12] + ")"
		}
	}
	return version
}

// OwnVersion returns the version of the running program.
func OwnVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return Version(info)
}
